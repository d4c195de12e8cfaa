#include "transport/mesh/receive_table.h"

#include <cstring>

#include "agoqcomm/error.h"

namespace agoq {
namespace {

constexpr std::size_t kKeepBytes = std::size_t{64} << 20;

[[noreturn]] void throw_length_mismatch(int peer, Tag tag, std::size_t sent, std::size_t expected) {
  throw Error(ErrorCode::kMismatch,
              "rank " + std::to_string(peer) + " sends " + std::to_string(sent) +
                  " bytes with tag " + std::to_string(tag) + ", where this rank expects " +
                  std::to_string(expected),
              peer);
}

}  // namespace

ReceiveTable::ReceiveTable(int size, std::size_t early_bytes,
                           std::function<void(int, std::uint64_t)> give_back)
    : early_bound_(early_bytes),
      give_back_(std::move(give_back)),
      pool_(kKeepBytes),
      unmatched_(static_cast<std::size_t>(size)),
      early_bytes_(static_cast<std::size_t>(size)) {}

std::uint64_t ReceiveTable::post(int peer, Tag tag, void* into, bool into_caller,
                                 std::size_t bytes) {
  ByTag& by_tag = unmatched_[static_cast<std::size_t>(peer)];
  const ByTag::Entry* const found = by_tag.find(tag);
  if (found == nullptr) {
    Receive receive;
    receive.peer = peer;
    receive.tag = tag;
    receive.bytes = bytes;
    receive.posted = true;
    receive.into = static_cast<std::byte*>(into);
    receive.into_caller = into_caller;
    const std::uint64_t id = receives_.add(receive);
    by_tag.add(tag, id);
    return id;
  }
  const std::uint64_t id = found->id;
  Receive& receive = *receives_.find(id);
  if (receive.posted) {
    throw Error(ErrorCode::kInvalidArgument, "tag " + std::to_string(tag) + " from rank " +
                                                 std::to_string(peer) + " is posted already");
  }
  if (receive.bytes != bytes) throw_length_mismatch(peer, tag, receive.bytes, bytes);
  by_tag.erase(found);
  if (receive.pooled != nullptr) early_bytes_[static_cast<std::size_t>(peer)] -= bytes;
  receive.posted = true;
  receive.into = static_cast<std::byte*>(into);
  receive.into_caller = into_caller;
  if (receive.complete) settle(receive);
  return id;
}

Placement ReceiveTable::place(const Incoming& message) {
  using Action = Placement::Action;
  ByTag& by_tag = unmatched_[static_cast<std::size_t>(message.peer)];
  const ByTag::Entry* const found = by_tag.find(message.tag);
  if (found != nullptr) {
    const std::uint64_t id = found->id;
    Receive& receive = *receives_.find(id);
    if (!receive.posted) {
      throw Error(ErrorCode::kMismatch,
                  "rank " + std::to_string(message.peer) + " sent tag " +
                      std::to_string(message.tag) + " twice in a call",
                  message.peer);
    }
    if (receive.bytes != message.bytes) {
      throw_length_mismatch(message.peer, message.tag, message.bytes, receive.bytes);
    }
    by_tag.erase(found);
    receive.started = true;
    if (receive.into_caller) return {Action::kCopy, receive.into, id};
    if (message.in_place != nullptr) {
      receive.data = message.in_place;
      receive.handle = message.handle;
      receive.kept = receive.complete = true;
      return {Action::kKept, nullptr, id};
    }
    receive.pooled = pool_.take(receive.bytes);
    receive.data = receive.pooled;
    return {Action::kCopy, receive.pooled, id};
  }

  if (message.is_patient) return {};
  std::size_t& early = early_bytes_[static_cast<std::size_t>(message.peer)];
  const bool fits = message.bytes <= early_bound_ && early <= early_bound_ - message.bytes;
  const bool keep = message.in_place != nullptr && message.may_wait_in_place;
  if (!keep && !fits) return {};
  Receive receive;
  receive.peer = message.peer;
  receive.tag = message.tag;
  receive.bytes = message.bytes;
  receive.started = true;
  if (keep) {
    receive.data = message.in_place;
    receive.handle = message.handle;
    receive.kept = receive.complete = true;
  } else {
    receive.pooled = pool_.take(receive.bytes);
    receive.data = receive.pooled;
    early += receive.bytes;
  }
  std::byte* const into = receive.pooled;
  const std::uint64_t id = receives_.add(receive);
  by_tag.add(message.tag, id);
  return {keep ? Action::kKept : Action::kCopy, into, id};
}

void ReceiveTable::on_received(std::uint64_t id) {
  Receive* receive = receives_.find(id);
  // Gone when the caller released a receive that had not completed: nothing is left to do.
  if (receive == nullptr) return;
  receive->complete = true;
  if (receive->posted) settle(*receive);
}

void ReceiveTable::settle(Receive& receive) {
  if (!receive.into_caller || receive.data == nullptr) return;
  if (receive.bytes != 0) std::memcpy(receive.into, receive.data, receive.bytes);
  forget_memory(receive);
}

void ReceiveTable::forget_memory(Receive& receive) {
  if (receive.kept) give_back_(receive.peer, receive.handle);
  if (receive.pooled != nullptr) pool_.give(receive.pooled, receive.bytes);
  receive.kept = false;
  receive.pooled = nullptr;
  receive.data = nullptr;
}

void ReceiveTable::release(std::uint64_t id) {
  if (Receive* receive = receives_.find(id)) {
    forget_memory(*receive);
    receives_.erase(id);
  }
}

std::string ReceiveTable::unmatched() {
  for (const ByTag& by_tag : unmatched_) {
    if (by_tag.empty()) continue;
    const Receive& receive = *receives_.find(by_tag.any().id);
    return "tag " + std::to_string(receive.tag) + " (" + std::to_string(receive.bytes) +
           " bytes) from rank " + std::to_string(receive.peer) +
           (receive.posted ? " was posted and has not come" : " came and was never posted");
  }
  return {};
}

std::string ReceiveTable::awaited(int peer) const {
  std::size_t count = 0;
  std::size_t bytes = 0;
  receives_.for_each([&](const Receive& receive) {
    if (receive.peer != peer || !receive.posted || receive.complete) return;
    ++count;
    bytes += receive.bytes;
  });
  if (count == 0) return {};
  return std::to_string(count) + (count == 1 ? " message of " : " messages of ") +
         std::to_string(bytes) + " bytes";
}

}  // namespace agoq
