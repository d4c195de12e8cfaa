// MeshTransport: the Transport over one Link to each peer, whatever the links are made of.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "agoqcomm/error.h"
#include "agoqcomm/transport.h"
#include "transport/mesh/id_table.h"
#include "transport/mesh/link.h"
#include "transport/mesh/receive_table.h"
#include "transport/mesh/send_memory.h"
#include "transport/mesh/unique_fd.h"

namespace agoq {

class MeshTransport final : public Transport, private Inbox {
 public:
  /// links[r] leads to rank r; the entry of `rank` is null.
  MeshTransport(std::string name, int rank, std::vector<std::unique_ptr<Link>> links,
                std::unique_ptr<SendMemory> memory, std::size_t early_bytes);
  ~MeshTransport() override;

  std::string_view name() const override { return name_; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(links_.size()); }

  void begin_call(const Label& label) override;
  void begin_pair_call(const Label& label, int peer) override;
  SendBuffer acquire(std::size_t bytes) override;
  void post_send(SendBuffer buffer, std::span<const int> peers, Tag tag) override;
  Ticket post_send(const void* data, std::size_t bytes, std::span<const int> peers,
                   Tag tag) override;
  Ticket post_receive(int peer, Tag tag, std::size_t bytes) override;
  Ticket post_receive(int peer, Tag tag, void* into, std::size_t bytes) override;
  bool test(Ticket ticket) override;
  const std::byte* received(Ticket ticket) override;
  void release(Ticket ticket) override;
  bool sends_complete() override;
  void wait(Clock::time_point deadline) override;
  void abort(const std::string& reason) noexcept override;
  int send_buffer_limit(std::size_t bytes) const override { return memory_->limit(bytes); }

 private:
  struct Send {
    int remaining = 0;
    SendBuffer buffer;  ///< data is null for the caller's memory.
  };

  // Inbox
  void on_call(int peer, std::uint32_t call, const Label& label) override;
  Placement on_message(const Incoming& message) override;
  void on_received(std::uint64_t receive) override { receives_.on_received(receive); }
  void on_sent(std::uint64_t send) override;

  /// Runs `body`; the first Error it throws is kept and thrown again by every later call.
  template <typename Body>
  auto guarded(Body&& body);
  void throw_if_failed();
  void throw_if_mismatched() const;
  void leave(const Farewell& farewell, Clock::duration patience) noexcept;
  void check_peer(int peer) const;
  void check_all_matched();
  void begin_call_with(int peer, const Label& label);
  void post_to_links(std::span<const int> peers, const Outgoing& message);

  bool progress();
  bool progress_unless_idle();
  void check_end(int peer);
  void sleep(Clock::time_point deadline);

  std::string name_;
  int rank_;
  UniqueFd wake_;  ///< eventfd of abort()
  std::vector<std::unique_ptr<Link>> links_;
  std::unique_ptr<SendMemory> memory_;
  ReceiveTable receives_;
  IdTable<Send> sends_;
  int buffers_in_flight_ = 0;

  struct Call {
    std::uint32_t number = 0;  ///< Of the calls with this peer.
    Label label{};
  };
  struct PeerCalls {
    Call own;
    Call theirs;
  };
  std::vector<PeerCalls> calls_;
  std::optional<LabelMismatch> mismatch_;
  std::optional<Error> failure_;
  Clock::time_point idle_since_{};  ///< Of the last progress() that moved nothing.
  int waits_without_yield_ = 0;
  std::vector<struct pollfd> poll_;

  std::atomic<bool> aborted_{false};
  std::mutex abort_mutex_;
  std::string abort_reason_;
};

}  // namespace agoq
