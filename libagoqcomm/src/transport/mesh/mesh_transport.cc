#include "transport/mesh/mesh_transport.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "transport/mesh/system_error.h"

namespace agoq {
namespace {

// Tickets of sends and of receives come from two tables; the top bit tells which.
constexpr Ticket kSendBit = Ticket{1} << 63;

// An idle link is not asked again before this, so that a caller may test() many tickets in a row.
constexpr auto kIdle = std::chrono::nanoseconds(800);
// A peer that runs on another core answers within this; then the core is worth more to others.
constexpr auto kSpin = std::chrono::nanoseconds(1500);
// A yielding thread finds a message sooner than a sleeping one is woken, which costs about 5 us.
constexpr auto kYield = std::chrono::microseconds(20);
// But where a yield takes this long, others than the ranks want the core, and would get it for a
// whole slice each time: so many waits then go to sleep at once, where a message wakes them.
constexpr auto kSlowYield = std::chrono::microseconds(100);
constexpr int kWaitsWithoutYield = 64;
// Between two looks at links that cannot wake this rank.
constexpr auto kNap = std::chrono::microseconds(100);

// How long the words about a failure may take, to all peers together.
constexpr auto kFarewell = std::chrono::milliseconds(50);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

MeshTransport::MeshTransport(std::string name, int rank, std::vector<std::unique_ptr<Link>> links,
                             std::unique_ptr<SendMemory> memory, std::size_t early_bytes)
    : name_(std::move(name)),
      rank_(rank),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      links_(std::move(links)),
      memory_(std::move(memory)),
      receives_(static_cast<int>(links_.size()), early_bytes,
                [this](int peer, std::uint64_t handle) { links_[peer]->give_back(handle); }),
      calls_(links_.size()) {
  if (!wake_) throw_system("cannot make an eventfd");
}

MeshTransport::~MeshTransport() {
  // Of an error the peers have heard when it was thrown. An abort is how a group may end, too: what
  // the peers miss then, they notice.
  leave({mismatch_.has_value(), {}}, Clock::duration::zero());
}

void MeshTransport::leave(const Farewell& farewell, Clock::duration patience) noexcept {
  const auto until = Clock::now() + patience;
  for (const auto& link : links_) {
    if (link != nullptr) link->leave(farewell, until);
  }
}

void MeshTransport::throw_if_failed() {
  if (aborted_.load(std::memory_order_acquire)) {
    std::lock_guard lock(abort_mutex_);
    throw Error(ErrorCode::kAborted, abort_reason_);
  }
  if (failure_) throw *failure_;
}

template <typename Body>
auto MeshTransport::guarded(Body&& body) {
  throw_if_failed();
  try {
    return body();
  } catch (const Error& error) {
    // A wrong argument or too many send buffers are the caller's; the streams are intact.
    if (error.code() != ErrorCode::kInvalidArgument && error.code() != ErrorCode::kSystem) {
      failure_ = error;
      // At once: the peers name the rank that failed first, whatever they see of it themselves.
      const bool blames = error.code() == ErrorCode::kPeerFailed;
      leave({true, blames ? error.peer() : std::nullopt}, kFarewell);
    }
    throw;
  }
}

void MeshTransport::throw_if_mismatched() const {
  if (mismatch_) throw *mismatch_;
}

void MeshTransport::check_peer(int peer) const {
  if (peer >= 0 && peer < size() && peer != rank_) return;
  throw Error(ErrorCode::kInvalidArgument,
              "no peer " + std::to_string(peer) + ": peers of rank " + std::to_string(rank_) +
                  " are the other ranks below " + std::to_string(size()));
}

void MeshTransport::begin_call(const Label& label) {
  guarded([&] {
    check_all_matched();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank_) begin_call_with(peer, label);
    }
  });
}

void MeshTransport::begin_pair_call(const Label& label, int peer) {
  guarded([&] {
    check_peer(peer);
    check_all_matched();
    begin_call_with(peer, label);
  });
}

void MeshTransport::check_all_matched() {
  const std::string unmatched = receives_.unmatched();
  if (unmatched.empty()) return;
  throw Error(ErrorCode::kMismatch, "at the start of a call, of the one before: " + unmatched);
}

void MeshTransport::begin_call_with(int peer, const Label& label) {
  Call& own = calls_[peer].own;
  own = {own.number + 1, label};
  links_[peer]->begin_call(own.number, label);
  const Call& theirs = calls_[peer].theirs;
  if (theirs.number == own.number) on_call(peer, theirs.number, theirs.label);
}

SendBuffer MeshTransport::acquire(std::size_t bytes) {
  return guarded([&] { return memory_->acquire(bytes); });
}

void MeshTransport::post_to_links(std::span<const int> peers, const Outgoing& message) {
  for (int peer : peers) {
    links_[peer]->post(message, *this);
    if (links_[peer]->end()) check_end(peer);
  }
}

void MeshTransport::post_send(SendBuffer buffer, std::span<const int> peers, Tag tag) {
  guarded([&] {
    for (int peer : peers) check_peer(peer);
    if (peers.empty()) {
      memory_->recycle(buffer);
      return;
    }
    ++buffers_in_flight_;
    const std::uint64_t send = sends_.add({static_cast<int>(peers.size()), buffer});
    post_to_links(peers, {tag, buffer.data, buffer.bytes, send, buffer.handle});
  });
}

Ticket MeshTransport::post_send(const void* data, std::size_t bytes, std::span<const int> peers,
                                Tag tag) {
  return guarded([&] {
    for (int peer : peers) check_peer(peer);
    const std::uint64_t send = sends_.add({static_cast<int>(peers.size()), {}});
    post_to_links(peers, {tag, static_cast<const std::byte*>(data), bytes, send, 0});
    return send | kSendBit;
  });
}

Ticket MeshTransport::post_receive(int peer, Tag tag, std::size_t bytes) {
  return guarded([&] {
    check_peer(peer);
    return receives_.post(peer, tag, nullptr, false, bytes);
  });
}

Ticket MeshTransport::post_receive(int peer, Tag tag, void* into, std::size_t bytes) {
  return guarded([&] {
    check_peer(peer);
    return receives_.post(peer, tag, into, true, bytes);
  });
}

bool MeshTransport::test(Ticket ticket) {
  return guarded([&] {
    throw_if_mismatched();
    const auto is_complete = [&] {
      if (ticket & kSendBit) {
        const Send* send = sends_.find(ticket & ~kSendBit);
        if (send != nullptr) return send->remaining == 0;
      } else if (const Receive* receive = receives_.find(ticket)) {
        return receive->complete;
      }
      throw Error(ErrorCode::kInvalidArgument,
                  "test() of a ticket that was never posted or is "
                  "released");
    };
    if (is_complete()) return true;
    if (!progress_unless_idle()) return false;
    throw_if_mismatched();
    return is_complete();
  });
}

const std::byte* MeshTransport::received(Ticket ticket) {
  throw_if_failed();
  const Receive* receive = receives_.find(ticket);
  if (receive == nullptr || !receive->complete || receive->into_caller) {
    throw Error(ErrorCode::kInvalidArgument,
                "received() takes the ticket of a completed receive into transport memory");
  }
  return receive->data;
}

void MeshTransport::release(Ticket ticket) {
  throw_if_failed();
  if (ticket & kSendBit) {
    const Send* send = sends_.find(ticket & ~kSendBit);
    if (send != nullptr && send->remaining == 0) return sends_.erase(ticket & ~kSendBit);
  } else {
    const Receive* receive = receives_.find(ticket);
    if (receive != nullptr && receive->complete) return receives_.release(ticket);
  }
  throw Error(ErrorCode::kInvalidArgument, "release() takes a completed ticket, once");
}

bool MeshTransport::sends_complete() {
  return guarded([&] {
    throw_if_mismatched();
    if (buffers_in_flight_ != 0) progress_unless_idle();
    return buffers_in_flight_ == 0;
  });
}

void MeshTransport::abort(const std::string& reason) noexcept {
  try {
    std::lock_guard lock(abort_mutex_);
    if (!aborted_.load(std::memory_order_relaxed)) abort_reason_ = reason;
  } catch (...) {
    // No memory for the reason: the abort itself still counts.
  }
  aborted_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

void MeshTransport::on_call(int peer, std::uint32_t call, const Label& label) {
  const Call& own = calls_[peer].own;
  if (call == own.number && label != own.label && !mismatch_) mismatch_ = {peer, own.label, label};
  calls_[peer].theirs = {call, label};
}

Placement MeshTransport::on_message(const Incoming& message) {
  if (mismatch_) return {};
  const std::uint32_t own = calls_[message.peer].own.number;
  if (message.call == own) return receives_.place(message);
  // A peer that has begun the next call has to wait; calls are compared across the wrap of 2^32.
  if (static_cast<std::int32_t>(message.call - own) > 0) return {};
  throw Error(ErrorCode::kMismatch,
              "rank " + std::to_string(message.peer) + " sent tag " + std::to_string(message.tag) +
                  " (" + std::to_string(message.bytes) + " bytes) in call " +
                  std::to_string(message.call) + "; this rank ended it without receiving that",
              message.peer);
}

void MeshTransport::on_sent(std::uint64_t id) {
  Send& send = *sends_.find(id);
  if (--send.remaining != 0 || send.buffer.data == nullptr) return;
  memory_->recycle(send.buffer);
  sends_.erase(id);
  --buffers_in_flight_;
}

bool MeshTransport::progress() {
  bool moved = false;
  // From the next rank on, so that not every rank serves rank 0 first.
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank_ + step) % size();
    moved |= links_[peer]->progress(*this);
    if (links_[peer]->end()) check_end(peer);
  }
  return moved;
}

bool MeshTransport::progress_unless_idle() {
  const auto now = Clock::now();
  if (now - idle_since_ < kIdle) return false;
  const bool moved = progress();
  if (!moved) idle_since_ = now;
  return moved;
}

void MeshTransport::check_end(int peer) {
  const LinkEnd& end = *links_[peer]->end();
  const int culprit = end.culprit.value_or(peer);
  const bool is_other = culprit != rank_ && culprit >= 0 && culprit < size();
  const int blamed = is_other ? culprit : peer;
  const std::string awaited = receives_.awaited(blamed);
  // A peer that has said goodbye may still be all that the running calls need.
  if (end.goodbye && awaited.empty() && !links_[peer]->has_unsent()) return;
  std::string text = "rank " + std::to_string(peer) + " (" + links_[peer]->address() + ") " +
                     end.reason + " while rank " + std::to_string(rank_);
  if (!awaited.empty()) {
    text += " awaited " + awaited + " from rank " + std::to_string(blamed);
  } else if (links_[peer]->has_unsent()) {
    text += " had messages for it";
  } else {
    text += " was in a group with it";
  }
  throw Error(ErrorCode::kPeerFailed, text, blamed);
}

void MeshTransport::wait(Clock::time_point deadline) {
  guarded([&] {
    if (mismatch_) return;
    const auto start = Clock::now();
    const auto last = std::min(deadline, start + (waits_without_yield_ > 0 ? kSpin : kYield));
    if (waits_without_yield_ > 0) --waits_without_yield_;
    for (auto now = start; now < last; now = Clock::now()) {
      if (progress() || mismatch_ || aborted_.load(std::memory_order_acquire)) return;
      if (now - start < kSpin) {
        pause();
        continue;
      }
      ::sched_yield();
      if (Clock::now() - now > kSlowYield) waits_without_yield_ = kWaitsWithoutYield;
    }
    if (Clock::now() < deadline) sleep(deadline);
  });
  throw_if_failed();
}

void MeshTransport::sleep(Clock::time_point deadline) {
  const auto rest = [this](bool resting) {
    for (const auto& link : links_) {
      if (link != nullptr) link->rest(resting);
    }
  };
  rest(true);
  // Whatever came before the peers could see this rank rest has woken nobody.
  bool moved = false;
  try {
    moved = progress();
  } catch (...) {
    rest(false);
    throw;
  }
  if (!moved && !mismatch_) {
    poll_.clear();
    poll_.push_back({wake_.get(), POLLIN, 0});
    for (const auto& link : links_) {
      poll_.push_back(link != nullptr ? link->poll_request() : pollfd{-1, 0, 0});
      if (link != nullptr && !link->wakes()) deadline = std::min(deadline, Clock::now() + kNap);
    }
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::max(deadline - Clock::now(), Clock::duration::zero()));
    const timespec timeout{static_cast<time_t>(left.count() / 1'000'000'000),
                           static_cast<long>(left.count() % 1'000'000'000)};
    const int ready = ::ppoll(poll_.data(), poll_.size(), &timeout, nullptr);
    for (std::size_t peer = 0; ready > 0 && peer < links_.size(); ++peer) {
      if (poll_[peer + 1].revents != 0) links_[peer]->polled(poll_[peer + 1].revents);
    }
  }
  rest(false);
  idle_since_ = {};
  progress();
}

}  // namespace agoq
