// The gloo transport: send and recv of a c10d backend that nothing else uses.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <unordered_map>
#include <vector>

#include "agoqcomm/transport.h"

namespace agoq {

/// Gloo reports a completed receive only to a thread that waits for it, so a thread for each peer
/// waits for that peer's receives in the order they were posted, and one more for all sends.
///
/// Gloo ends the process when a message is longer than its receive. So that ranks that disagree
/// never come to that, every rank sends its label to all others at the start of a call, and posts
/// the receives of a peer only when that peer's label has come and is equal. Messages without bytes
/// do not travel: the label stands for them.
class C10dTransport final : public Transport {
 public:
  explicit C10dTransport(c10::intrusive_ptr<c10d::Backend> backend);
  ~C10dTransport() override;

  std::string_view name() const override { return "gloo"; }
  int rank() const override { return backend_->getRank(); }
  int size() const override { return backend_->getSize(); }

  void begin_call(const Label& label) override;
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
  int send_buffer_limit(std::size_t bytes) const override;

 private:
  /// One send or receive as Gloo sees it.
  struct Message {
    int peer = -1;
    int tag = 0;
    at::Tensor bytes;
    Ticket ticket = 0;  ///< What it counts for; 0: nothing.
    /// Of a receive of a label: what the label must be.
    std::optional<Label> expected_label;
    c10::intrusive_ptr<c10d::Work> work;
  };
  /// What a ticket stands for.
  struct Pending {
    int open = 0;                 ///< Messages that have not completed.
    at::Tensor memory;            ///< Of the transport, where the caller's is not used.
    bool is_send_buffer = false;  ///< Nobody tests it: it goes when it completes.
  };
  /// Messages that one thread waits for, in order.
  struct Lane {
    std::deque<Message> posted;
    std::thread thread;
  };
  struct Peer {
    Lane receives;
    int labels_open = 0;
    std::deque<Message> held;  ///< Receives that wait for the peer's label.
  };

  void run(Lane& lane, bool is_send);

  // These are called with mutex_ held.
  Ticket receive(int peer, Tag tag, at::Tensor into, at::Tensor memory);
  void release_held(Peer& peer);
  void post(Lane& lane, Message message, bool is_send);
  void complete(Message& message);
  void count_down(Ticket ticket);
  Ticket new_ticket(Pending pending);
  void require_open() const;
  void fail(std::exception_ptr error) noexcept;
  at::Tensor take_bytes(std::size_t bytes);
  void recycle(at::Tensor memory);

  const c10::intrusive_ptr<c10d::Backend> backend_;

  mutable std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable progressed_;
  std::uint64_t progress_ = 0;
  std::uint64_t seen_progress_ = 0;
  std::exception_ptr error_;
  bool stopped_ = false;

  Ticket next_ticket_ = 1;
  std::unordered_map<Ticket, Pending> pending_;
  std::unordered_map<std::uint64_t, at::Tensor> acquired_;
  int send_buffers_open_ = 0;
  std::multimap<std::size_t, at::Tensor> idle_bytes_;

  Lane sends_;
  std::vector<Peer> peers_;
};

}  // namespace agoq
