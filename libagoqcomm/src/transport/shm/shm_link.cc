#include "transport/shm/shm_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/mesh/system_error.h"

namespace agoq {
namespace {

constexpr char kWake = 'w';
constexpr char kGoodbye = 'g';
constexpr char kGaveUp = 'f';

// Of a peer's copy slots so many may be kept by receives until they are released. The others are
// always emptied at once, so that whatever a caller holds back, the next message comes.
constexpr std::uint32_t kMostKeptCopies = kCopySlots / 2;
// After this much of one peer's the others get their turn.
constexpr std::size_t kTurnBytes = std::size_t{1} << 20;
// A thread that never sleeps looks at the doorbell this seldom, since it costs a system call.
constexpr int kIdleTurns = 512;

}  // namespace

ShmLink::ShmLink(ShmEnds ends)
    : ends_(std::move(ends)),
      out_(ends_.own->segment().ring(ends_.peer_index)),
      in_(ends_.theirs->ring(ends_.own_index)) {}

void ShmLink::leave(const Farewell& farewell, Clock::time_point) noexcept {
  if (left_ || end_ || (!queue_.empty() && !farewell.failed)) return;
  left_ = true;
  queue_.clear();
  if (farewell.failed && farewell.culprit) {
    const auto blamed = static_cast<std::uint32_t>(*farewell.culprit) + 1;
    ends_.own->segment().header().blamed.store(blamed, std::memory_order_release);
  }
  const char word = farewell.failed ? kGaveUp : kGoodbye;
  ::send(ends_.doorbell.get(), &word, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ShmLink::begin_call(std::uint32_t call, const Label& label) {
  call_ = call;
  label_ = label;
  label_sent_ = false;
}

void ShmLink::post(const Outgoing& message, Inbox& inbox) {
  if (left_) return;
  queue_.push_back(message);
  if (queue_.size() == 1) send_some(inbox);
}

bool ShmLink::progress(Inbox& inbox) {
  const bool sent = send_some(inbox);
  const bool moved = receive_some(inbox) || sent;
  idle_ = moved ? 0 : idle_ + 1;
  if (idle_ == kIdleTurns) {
    idle_ = 0;
    polled(POLLIN);
  }
  return moved;
}

bool ShmLink::send_some(Inbox& inbox) {
  if (queue_.empty() || hung_up_) return false;
  const std::uint32_t before = tail_;
  turn_ = 0;
  while (!queue_.empty() && turn_ < kTurnBytes && send_front(inbox)) {
  }
  if (tail_ == before) return false;
  wake_peer();
  return true;
}

bool ShmLink::has_room() const {
  return tail_ - out_.head.load(std::memory_order_seq_cst) < kRingEntries;
}

bool ShmLink::send_front(Inbox& inbox) {
  if (!has_room()) return false;
  if (!label_sent_) {
    Descriptor descriptor{Descriptor::Kind::kCall, call_, {}};
    descriptor.label = label_;
    publish(descriptor);
    label_sent_ = true;
    return true;
  }
  const Outgoing message = queue_.front();
  Descriptor descriptor{Descriptor::Kind::kMessage, call_, {}};
  Descriptor::Piece& piece = descriptor.piece;
  piece = {message.tag, message.bytes, sent_of_front_, 0, 0, kNoSlot};
  Arena& arena = *ends_.own;
  if (const auto slot = ArenaSendMemory::slot_of(message.handle); slot != kNoSlot) {
    piece.slot = slot;
    piece.data = arena.offset_of(message.data);
    piece.bytes = message.bytes;
    arena.add_user(slot);
  } else if (message.bytes != 0) {
    const std::uint32_t number = free_copy();
    if (number == kCopySlots) return false;
    const Segment& segment = arena.segment();
    std::byte* const copy = segment.copy_data(ends_.peer_index, number);
    const std::size_t bytes = std::min(segment.copy_bytes(), message.bytes - sent_of_front_);
    std::memcpy(copy, message.data + sent_of_front_, bytes);
    piece.slot = segment.copy_slot(ends_.peer_index, number);
    piece.data = arena.offset_of(copy);
    piece.bytes = bytes;
    segment.slot(piece.slot).users.store(1, std::memory_order_relaxed);
  }
  publish(descriptor);
  turn_ += piece.bytes;
  sent_of_front_ += piece.bytes;
  if (sent_of_front_ == message.bytes) {
    sent_of_front_ = 0;
    queue_.pop_front();
    inbox.on_sent(message.send);
  }
  return true;
}

std::uint32_t ShmLink::free_copy() const {
  // The lowest first: it is the one most likely in cache.
  const Segment& segment = ends_.own->segment();
  std::uint32_t number = 0;
  while (number < kCopySlots) {
    const std::uint32_t slot = segment.copy_slot(ends_.peer_index, number);
    if (segment.slot(slot).users.load(std::memory_order_seq_cst) == 0) break;
    ++number;
  }
  return number;
}

void ShmLink::publish(const Descriptor& descriptor) {
  out_.entries[tail_ % kRingEntries].descriptor = descriptor;
  out_.tail.store(++tail_, std::memory_order_seq_cst);
}

bool ShmLink::receive_some(Inbox& inbox) {
  if (end_) return false;
  if (gave_up_) {
    end_ = gave_up(ends_.theirs->header().blamed.load(std::memory_order_acquire));
    return true;
  }
  const std::uint32_t before = head_;
  const std::uint32_t tail = in_.tail.load(std::memory_order_seq_cst);
  if (tail - head_ > kRingEntries) {
    fail("has overrun its ring");
    return true;
  }
  bool stopped = false;
  for (turn_ = 0; head_ != tail && turn_ < kTurnBytes && !end_; ++head_) {
    // Copied first: what is checked must be what is used, whatever the peer does.
    const Descriptor descriptor = in_.entries[head_ % kRingEntries].descriptor;
    stopped = !take(descriptor, inbox);
    if (stopped) break;
  }
  if (head_ != before) {
    in_.head.store(head_, std::memory_order_seq_cst);
    wake_peer();
    return true;
  }
  // The ring was looked at after the peer hung up, so nothing more will come. What stopped here may
  // find its place in the next call, but a peer that failed is not worth waiting for.
  if (hung_up_ && (!stopped || !goodbye_)) {
    end_ = goodbye_ ? LinkEnd{true, "has left the group", {}}
                    : LinkEnd{false, "died or closed its end without a goodbye", {}};
  }
  return false;
}

bool ShmLink::take(const Descriptor& descriptor, Inbox& inbox) {
  switch (descriptor.kind) {
    case Descriptor::Kind::kCall:
      inbox.on_call(ends_.peer, descriptor.call, descriptor.label);
      return true;
    case Descriptor::Kind::kMessage:
      if (!is_sound(descriptor.piece)) break;
      return take_piece(descriptor, inbox);
  }
  fail("has written what is no descriptor of this protocol");
  return false;
}

bool ShmLink::is_sound(const Descriptor::Piece& piece) const {
  const std::size_t room = ends_.theirs->data_bytes();
  const bool has_slot =
      piece.slot < ends_.theirs->slots() || (piece.slot == kNoSlot && piece.bytes == 0);
  return has_slot && piece.bytes <= room && piece.data <= room - piece.bytes &&
         piece.offset == body_got_ && piece.offset <= piece.message_bytes &&
         piece.bytes <= piece.message_bytes - piece.offset &&
         (piece.bytes != 0 || piece.message_bytes == 0);
}

bool ShmLink::take_piece(const Descriptor& descriptor, Inbox& inbox) {
  const Descriptor::Piece& piece = descriptor.piece;
  const std::byte* const data = ends_.theirs->data() + piece.data;
  if (piece.offset == 0) {
    const bool is_copy = piece.slot != kNoSlot && piece.slot >= kBufferSlots;
    const bool may_keep =
        piece.bytes == piece.message_bytes && (!is_copy || kept_copies_ < kMostKeptCopies);
    const Placement placement =
        inbox.on_message({ends_.peer, descriptor.call, piece.tag, piece.message_bytes,
                          may_keep ? data : nullptr, !is_copy, piece.slot});
    if (placement.action == Placement::Action::kNotNow) return false;
    if (placement.action == Placement::Action::kKept) {
      kept_copies_ += is_copy;
      return true;
    }
    body_ = placement.into;
    receive_ = placement.receive;
  }
  if (piece.bytes != 0) std::memcpy(body_ + piece.offset, data, piece.bytes);
  turn_ += piece.bytes;
  release(piece.slot);
  body_got_ += piece.bytes;
  if (body_got_ == piece.message_bytes) {
    body_got_ = 0;
    inbox.on_received(receive_);
  }
  return true;
}

void ShmLink::release(std::uint32_t slot) {
  if (slot != kNoSlot) ends_.theirs->slot(slot).users.fetch_sub(1);
}

void ShmLink::give_back(std::uint64_t handle) {
  const auto slot = static_cast<std::uint32_t>(handle);
  if (slot != kNoSlot && slot >= kBufferSlots) --kept_copies_;
  release(slot);
  wake_peer();
}

void ShmLink::wake_peer() {
  std::atomic<std::uint32_t>& resting = ends_.theirs->header().resting;
  if (resting.load(std::memory_order_seq_cst) == 0 || resting.exchange(0) == 0) return;
  // A full socket holds wake-ups enough, and a closed one is noticed when it is read.
  ::send(ends_.doorbell.get(), &kWake, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ShmLink::rest(bool resting) {
  ends_.own->segment().header().resting.store(resting ? 1 : 0, std::memory_order_seq_cst);
}

pollfd ShmLink::poll_request() const { return {hung_up_ ? -1 : ends_.doorbell.get(), POLLIN, 0}; }

void ShmLink::polled(short) {
  char bytes[64];
  while (!hung_up_) {
    const ssize_t count = ::recv(ends_.doorbell.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (count < 0 && is_retry(errno)) return;
    hung_up_ = count <= 0;
    for (ssize_t i = 0; i < count; ++i) {
      goodbye_ |= bytes[i] == kGoodbye;
      gave_up_ |= bytes[i] == kGaveUp;
    }
  }
}

void ShmLink::fail(const std::string& reason) { end_ = LinkEnd{false, reason, {}}; }

}  // namespace agoq
