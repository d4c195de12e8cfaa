// One rank's end of an inproc group.
#pragma once

#include <mutex>
#include <unordered_map>

#include "agoqcomm/transport.h"
#include "transport/inproc/group.h"

namespace agoq::inproc {

/// As Transport: one thread at a time, abort() beside it. A message in a send buffer is read where
/// it was written; one in the caller's memory is copied once, by the receiver.
class InprocTransport final : public Transport {
 public:
  InprocTransport(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank), calls_(group_->ends.size()) {}
  ~InprocTransport() override;

  std::string_view name() const override { return "inproc"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->ends.size()); }
  void begin_call(const Label& label) override;
  void begin_pair_call(const Label& label, int peer) override;
  SendBuffer acquire(std::size_t bytes) override;
  void post_send(SendBuffer buffer, std::span<const int> peers, Tag tag) override;
  Ticket post_send(const void* data, std::size_t bytes, std::span<const int> peers,
                   Tag tag) override;
  Ticket post_receive(int peer, Tag tag, std::size_t bytes) override;
  Ticket post_receive(int peer, Tag tag, void* into, std::size_t bytes) override;
  bool test(Ticket ticket) override;
  const std::byte* received(Ticket ticket) override { return receives_.at(ticket).data; }
  void release(Ticket ticket) override;
  bool sends_complete() override;
  void wait(Clock::time_point deadline) override;
  void abort(const std::string& reason) noexcept override;
  int send_buffer_limit(std::size_t) const override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  struct Receive {
    int peer;
    Tag tag;
    std::size_t bytes;
    void* into = nullptr;  ///< Null: memory of the transport.
    bool complete = false;
    const std::byte* data = nullptr;
    std::shared_ptr<Send> read_in_place{};  ///< The send whose buffer `data` is.
    std::shared_ptr<Buffer> copy{};         ///< Or where the caller's memory was copied to.
  };

  End& own() { return group_->ends[rank_]; }
  void deliver(const std::shared_ptr<Send>& send, std::span<const int> peers, Tag tag);
  bool test_receive(Receive& receive, Lock& lock);
  void take(Receive& receive, const std::shared_ptr<Send>& send, Lock& lock);
  bool is_read(const Send& send);
  void throw_if_ended();
  [[noreturn]] void throw_peer_failed(int peer);
  void end(const std::string& reason);

  const std::shared_ptr<Group> group_;
  const int rank_;
  struct Call {
    std::uint64_t number = 0;  ///< Of the calls with this peer.
    Label label{};
  };
  std::vector<Call> calls_;    ///< One a rank.
  std::uint64_t next_id_ = 1;  // Of tickets and of send buffers.
  std::uint64_t seen_events_ = 0;
  std::unordered_map<Ticket, Receive> receives_;
  std::unordered_map<Ticket, std::shared_ptr<Send>> value_sends_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Buffer>> held_;
  std::vector<std::shared_ptr<Send>> buffer_sends_;  // Not known to be read yet.
};

}  // namespace agoq::inproc
