#include "c10d_transport.h"

#include <ATen/Functions.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "agoqcomm/error.h"
#include "errors.h"

namespace agoq {
namespace {

constexpr int kLabelTag = std::numeric_limits<int>::max();
/// Deadlines are the caller's business; Gloo must not have an earlier one of its own.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);
constexpr std::size_t kSendBufferBytes = std::size_t{64} << 20;

int to_gloo_tag(Tag tag) {
  if (tag >= static_cast<Tag>(kLabelTag)) {
    throw Error(ErrorCode::kUnsupported, "the gloo transport has no room for tag " +
                                             std::to_string(tag) + "; use larger segments");
  }
  return static_cast<int>(tag);
}

at::Tensor wrap(const void* data, std::size_t bytes) {
  return at::from_blob(const_cast<void*>(data), {static_cast<std::int64_t>(bytes)}, at::kByte);
}

std::exception_ptr peer_failed(int peer, const std::string& cause) {
  return std::make_exception_ptr(Error(
      ErrorCode::kPeerFailed,
      "the connection to rank " + std::to_string(peer) + " broke; gloo says: " + cause, peer));
}

}  // namespace

C10dTransport::C10dTransport(c10::intrusive_ptr<c10d::Backend> backend)
    : backend_(std::move(backend)), peers_(static_cast<std::size_t>(backend_->getSize())) {
  if (size() == 1) return;
  sends_.thread = std::thread([this] { run(sends_, true); });
  for (int peer = 0; peer < size(); ++peer) {
    auto& lane = peers_[static_cast<std::size_t>(peer)].receives;
    if (peer != rank()) lane.thread = std::thread([this, &lane] { run(lane, false); });
  }
}

C10dTransport::~C10dTransport() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  abort("the group was destroyed");
  posted_.notify_all();
  if (sends_.thread.joinable()) sends_.thread.join();
  for (auto& peer : peers_) {
    if (peer.receives.thread.joinable()) peer.receives.thread.join();
  }
}

void C10dTransport::begin_call(const Label& label) {
  std::lock_guard lock(mutex_);
  require_open();
  auto bytes = at::empty({static_cast<std::int64_t>(label.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), label.data(), label.size());
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    auto& state = peers_[static_cast<std::size_t>(peer)];
    ++state.labels_open;
    post(state.receives, {peer, kLabelTag, at::empty_like(bytes), 0, label, {}}, false);
    post(sends_, {peer, kLabelTag, bytes, 0, {}, {}}, true);
  }
}

SendBuffer C10dTransport::acquire(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  require_open();
  const std::uint64_t handle = next_ticket_++;
  auto memory = take_bytes(bytes);
  auto* const data = static_cast<std::byte*>(memory.data_ptr());
  acquired_.emplace(handle, std::move(memory));
  return {data, bytes, handle};
}

void C10dTransport::post_send(SendBuffer buffer, std::span<const int> peers, Tag tag) {
  std::lock_guard lock(mutex_);
  require_open();
  const auto found = acquired_.find(buffer.handle);
  auto memory = std::move(found->second);
  acquired_.erase(found);
  if (peers.empty() || buffer.bytes == 0) return recycle(std::move(memory));
  ++send_buffers_open_;
  const auto ticket = new_ticket({static_cast<int>(peers.size()), std::move(memory), true});
  for (const int peer : peers) {
    post(sends_, {peer, to_gloo_tag(tag), wrap(buffer.data, buffer.bytes), ticket, {}, {}}, true);
  }
}

Ticket C10dTransport::post_send(const void* data, std::size_t bytes, std::span<const int> peers,
                                Tag tag) {
  std::lock_guard lock(mutex_);
  require_open();
  const auto ticket = new_ticket({bytes == 0 ? 0 : static_cast<int>(peers.size()), {}, false});
  if (bytes == 0) return ticket;
  for (const int peer : peers) {
    post(sends_, {peer, to_gloo_tag(tag), wrap(data, bytes), ticket, {}, {}}, true);
  }
  return ticket;
}

Ticket C10dTransport::post_receive(int peer, Tag tag, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  auto memory = take_bytes(bytes);
  auto view = wrap(memory.data_ptr(), bytes);
  return receive(peer, tag, std::move(view), std::move(memory));
}

Ticket C10dTransport::post_receive(int peer, Tag tag, void* into, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  return receive(peer, tag, wrap(into, bytes), {});
}

Ticket C10dTransport::receive(int peer, Tag tag, at::Tensor into, at::Tensor memory) {
  require_open();
  const auto ticket = new_ticket({1, std::move(memory), false});
  auto& state = peers_[static_cast<std::size_t>(peer)];
  state.held.push_back({peer, to_gloo_tag(tag), std::move(into), ticket, {}, {}});
  if (state.labels_open == 0) release_held(state);
  return ticket;
}

void C10dTransport::release_held(Peer& peer) {
  for (; !peer.held.empty(); peer.held.pop_front()) {
    auto& message = peer.held.front();
    if (message.bytes.numel() == 0) {
      count_down(message.ticket);
    } else {
      post(peer.receives, std::move(message), false);
    }
  }
}

void C10dTransport::post(Lane& lane, Message message, bool is_send) {
  try {
    std::vector<at::Tensor> tensors{message.bytes};
    message.work = is_send ? backend_->send(tensors, message.peer, message.tag)
                           : backend_->recv(tensors, message.peer, message.tag);
  } catch (...) {
    fail(peer_failed(message.peer, first_line(std::current_exception())));
    std::rethrow_exception(error_);
  }
  lane.posted.push_back(std::move(message));
  posted_.notify_all();
}

void C10dTransport::run(Lane& lane, bool is_send) {
  pthread_setname_np(pthread_self(), is_send ? "agoq_gloo_send" : "agoq_gloo_recv");
  std::unique_lock lock(mutex_);
  while (true) {
    posted_.wait(lock, [&] { return stopped_ || !lane.posted.empty(); });
    if (lane.posted.empty()) return;
    // It stays in the lane meanwhile, where abort() finds it.
    const auto work = lane.posted.front().work;
    lock.unlock();
    std::exception_ptr cause;
    try {
      work->wait(kForever);
    } catch (...) {
      cause = std::current_exception();
    }
    lock.lock();
    auto message = std::move(lane.posted.front());
    lane.posted.pop_front();
    if (error_) continue;
    if (cause) {
      fail(peer_failed(message.peer, first_line(cause)));
    } else {
      complete(message);
    }
  }
}

void C10dTransport::complete(Message& message) {
  if (message.expected_label) {
    Label theirs;
    std::memcpy(theirs.data(), message.bytes.data_ptr(), theirs.size());
    if (theirs != *message.expected_label) {
      return fail(
          std::make_exception_ptr(LabelMismatch{message.peer, *message.expected_label, theirs}));
    }
    auto& peer = peers_[static_cast<std::size_t>(message.peer)];
    if (--peer.labels_open == 0) {
      try {
        release_held(peer);
      } catch (...) {
        // post() has stored the error already; the thread that tests finds it.
      }
    }
  } else if (message.ticket != 0) {
    count_down(message.ticket);
  }
  ++progress_;
  progressed_.notify_all();
}

void C10dTransport::count_down(Ticket ticket) {
  const auto found = pending_.find(ticket);
  if (found == pending_.end() || --found->second.open > 0) return;
  if (!found->second.is_send_buffer) return;
  recycle(std::move(found->second.memory));
  pending_.erase(found);
  --send_buffers_open_;
}

Ticket C10dTransport::new_ticket(Pending pending) {
  const auto ticket = next_ticket_++;
  pending_.emplace(ticket, std::move(pending));
  return ticket;
}

bool C10dTransport::test(Ticket ticket) {
  std::lock_guard lock(mutex_);
  require_open();
  return pending_.at(ticket).open == 0;
}

const std::byte* C10dTransport::received(Ticket ticket) {
  std::lock_guard lock(mutex_);
  return static_cast<const std::byte*>(pending_.at(ticket).memory.data_ptr());
}

void C10dTransport::release(Ticket ticket) {
  std::lock_guard lock(mutex_);
  const auto found = pending_.find(ticket);
  if (found == pending_.end()) return;
  if (found->second.memory.defined()) recycle(std::move(found->second.memory));
  pending_.erase(found);
}

bool C10dTransport::sends_complete() {
  std::lock_guard lock(mutex_);
  require_open();
  return send_buffers_open_ == 0;
}

void C10dTransport::wait(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  progressed_.wait_until(lock, deadline, [this] { return error_ || progress_ != seen_progress_; });
  seen_progress_ = progress_;
}

void C10dTransport::abort(const std::string& reason) noexcept {
  try {
    std::lock_guard lock(mutex_);
    fail(std::make_exception_ptr(Error(ErrorCode::kAborted, reason)));
  } catch (...) {
    // Nothing to add: the mutex or memory is gone, and with it the process.
  }
}

int C10dTransport::send_buffer_limit(std::size_t bytes) const {
  const auto fitting = kSendBufferBytes / std::max<std::size_t>(bytes, 1);
  return static_cast<int>(
      std::clamp<std::size_t>(fitting, 2 * static_cast<std::size_t>(size()), 1024));
}

void C10dTransport::require_open() const {
  if (error_) std::rethrow_exception(error_);
}

void C10dTransport::fail(std::exception_ptr error) noexcept {
  if (!error_) error_ = std::move(error);
  const auto end = [](Lane& lane) {
    for (auto& message : lane.posted) {
      if (message.work) message.work->abort();
    }
  };
  end(sends_);
  for (auto& peer : peers_) end(peer.receives);
  progressed_.notify_all();
}

at::Tensor C10dTransport::take_bytes(std::size_t bytes) {
  const auto found = idle_bytes_.lower_bound(bytes);
  if (found == idle_bytes_.end() || found->first > 2 * bytes) {
    return at::empty({static_cast<std::int64_t>(bytes)}, at::kByte);
  }
  auto memory = std::move(found->second);
  idle_bytes_.erase(found);
  return memory;
}

void C10dTransport::recycle(at::Tensor memory) {
  const auto bytes = memory.nbytes();
  if (bytes > 0) idle_bytes_.emplace(bytes, std::move(memory));
}

}  // namespace agoq
