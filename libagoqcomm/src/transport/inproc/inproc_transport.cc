#include "transport/inproc/inproc_transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "agoqcomm/error.h"
#include "agoqcomm/inproc.h"

namespace agoq::inproc {
namespace {

constexpr int kBuffersPerRank = 8;

std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

InprocTransport::~InprocTransport() {
  end("it left the group");
  const Lock lock(group_->mutex);
  for (auto& [ticket, receive] : receives_) {
    if (receive.read_in_place != nullptr) group_->mark_read(*receive.read_in_place, rank_);
  }
}

void InprocTransport::begin_call(const Label& label) {
  const Lock lock(group_->mutex);
  throw_if_ended();
  for (Call& call : calls_) call = {call.number + 1, label};
}

void InprocTransport::begin_pair_call(const Label& label, int peer) {
  const Lock lock(group_->mutex);
  throw_if_ended();
  calls_[peer] = {calls_[peer].number + 1, label};
}

SendBuffer InprocTransport::acquire(std::size_t bytes) {
  const Lock lock(group_->mutex);
  throw_if_ended();
  if (own().buffers_out == send_buffer_limit(bytes)) {
    throw Error(ErrorCode::kSystem, "all " + std::to_string(own().buffers_out) +
                                        " send buffers of the inproc transport are in use: keep "
                                        "fewer than send_buffer_limit() in flight");
  }
  std::shared_ptr<Buffer> buffer = group_->take_buffer(rank_, bytes);
  ++own().buffers_out;
  const SendBuffer handed_out{buffer->data(), bytes, next_id_++};
  held_.emplace(handed_out.handle, std::move(buffer));
  return handed_out;
}

void InprocTransport::post_send(SendBuffer buffer, std::span<const int> peers, Tag tag) {
  const Lock lock(group_->mutex);
  auto memory = held_.extract(buffer.handle);
  if (memory.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "this send buffer was not acquired here, or has been posted before");
  }
  throw_if_ended();
  if (peers.empty()) {
    --own().buffers_out;
    group_->recycle(rank_, std::move(memory.mapped()));
    return;
  }
  const auto send = std::make_shared<Send>(Send{.from = rank_,
                                                .unread_by = {peers.begin(), peers.end()},
                                                .buffer = std::move(memory.mapped()),
                                                .data = buffer.data,
                                                .bytes = buffer.bytes});
  buffer_sends_.push_back(send);
  deliver(send, peers, tag);
}

Ticket InprocTransport::post_send(const void* data, std::size_t bytes, std::span<const int> peers,
                                  Tag tag) {
  const Lock lock(group_->mutex);
  throw_if_ended();
  const auto send = std::make_shared<Send>(Send{.from = rank_,
                                                .unread_by = {peers.begin(), peers.end()},
                                                .buffer = nullptr,
                                                .data = static_cast<const std::byte*>(data),
                                                .bytes = bytes});
  value_sends_.emplace(next_id_, send);
  deliver(send, peers, tag);
  return next_id_++;
}

void InprocTransport::deliver(const std::shared_ptr<Send>& send, std::span<const int> peers,
                              Tag tag) {
  for (const int peer : peers) {
    group_->ends[peer].inbox[rank_].push_back({tag, calls_[peer].number, calls_[peer].label, send});
    group_->notify(peer);
  }
}

Ticket InprocTransport::post_receive(int peer, Tag tag, std::size_t bytes) {
  return post_receive(peer, tag, nullptr, bytes);
}

Ticket InprocTransport::post_receive(int peer, Tag tag, void* into, std::size_t bytes) {
  Receive receive{.peer = peer, .tag = tag, .bytes = bytes, .into = into};
  receives_.emplace(next_id_, std::move(receive));
  return next_id_++;
}

bool InprocTransport::test(Ticket ticket) {
  Lock lock(group_->mutex);
  throw_if_ended();
  if (const auto send = value_sends_.find(ticket); send != value_sends_.end()) {
    return is_read(*send->second);
  }
  Receive& receive = receives_.at(ticket);
  return receive.complete || test_receive(receive, lock);
}

bool InprocTransport::test_receive(Receive& receive, Lock& lock) {
  std::deque<Message>& inbox = own().inbox[receive.peer];
  const Call& call = calls_[receive.peer];
  for (auto message = inbox.begin(); message != inbox.end(); ++message) {
    // Messages come in order: one of another call here means that the awaited one never comes.
    if (message->call != call.number || message->label != call.label) {
      throw LabelMismatch{receive.peer, call.label, message->label};
    }
    if (message->tag != receive.tag) continue;
    const std::shared_ptr<Send> send = message->send;
    if (send->bytes != receive.bytes) {
      throw Error(ErrorCode::kMismatch,
                  rank_name(receive.peer) + " sent a message of " + std::to_string(send->bytes) +
                      " bytes, where " + rank_name(rank_) + " expects " +
                      std::to_string(receive.bytes),
                  receive.peer);
    }
    const bool withdrawn = send->buffer == nullptr && group_->ends[receive.peer].ended;
    if (withdrawn) break;
    inbox.erase(message);
    take(receive, send, lock);
    return true;
  }
  if (group_->ends[receive.peer].ended) throw_peer_failed(receive.peer);
  return false;
}

void InprocTransport::take(Receive& receive, const std::shared_ptr<Send>& send, Lock& lock) {
  receive.complete = true;
  if (receive.into == nullptr && send->buffer != nullptr) {
    receive.data = send->data;
    receive.read_in_place = send;
    return;
  }
  if (receive.into == nullptr) receive.copy = group_->take_buffer(rank_, receive.bytes);
  void* to = receive.into != nullptr ? receive.into : receive.copy->data();
  receive.data = static_cast<const std::byte*>(to);
  End& sender = group_->ends[send->from];
  ++sender.being_copied;
  lock.unlock();
  if (send->bytes > 0) std::memcpy(to, send->data, send->bytes);
  lock.lock();
  if (--sender.being_copied == 0) sender.changed.notify_all();
  group_->mark_read(*send, rank_);
}

void InprocTransport::release(Ticket ticket) {
  const Lock lock(group_->mutex);
  if (value_sends_.erase(ticket) != 0) return;
  const auto receive = receives_.extract(ticket);
  if (receive.empty()) return;
  Receive& done = receive.mapped();
  if (done.read_in_place != nullptr) group_->mark_read(*done.read_in_place, rank_);
  if (done.copy != nullptr) group_->recycle(rank_, std::move(done.copy));
}

bool InprocTransport::sends_complete() {
  const Lock lock(group_->mutex);
  throw_if_ended();
  std::erase_if(buffer_sends_, [&](const auto& send) { return is_read(*send); });
  return buffer_sends_.empty();
}

void InprocTransport::wait(Clock::time_point deadline) {
  Lock lock(group_->mutex);
  // Counted since the last wait, not since this one began: what came in between is not slept over.
  const auto news = [&] { return own().events != seen_events_; };
  own().changed.wait_until(lock, std::min(deadline, Clock::now() + std::chrono::hours(1)), news);
  seen_events_ = own().events;
}

void InprocTransport::abort(const std::string& reason) noexcept { end(reason); }

int InprocTransport::send_buffer_limit(std::size_t) const { return kBuffersPerRank * size(); }

bool InprocTransport::is_read(const Send& send) {
  for (const int peer : send.unread_by) {
    if (group_->ends[peer].ended) throw_peer_failed(peer);
  }
  return send.unread_by.empty();
}

void InprocTransport::throw_if_ended() {
  if (own().ended) throw Error(ErrorCode::kAborted, *own().ended);
}

void InprocTransport::throw_peer_failed(int peer) {
  // A peer that ended because the ranks disagree says less than the disagreement itself.
  for (int other = 0; other < size(); ++other) {
    for (const Message& message : own().inbox[other]) {
      const Call& call = calls_[other];
      if (message.call == call.number && message.label != call.label) {
        throw LabelMismatch{other, call.label, message.label};
      }
    }
  }
  throw Error(ErrorCode::kPeerFailed,
              rank_name(peer) + " takes part no more: " + *group_->ends[peer].ended, peer);
}

void InprocTransport::end(const std::string& reason) {
  Lock lock(group_->mutex);
  if (!own().ended) {
    own().ended = reason;
    for (int rank = 0; rank < size(); ++rank) group_->notify(rank);
  }
  // From here on nobody starts to read this rank's caller's memory; those who are at it end soon.
  own().changed.wait(lock, [&] { return own().being_copied == 0; });
}

}  // namespace agoq::inproc

namespace agoq {

std::vector<std::unique_ptr<Transport>> make_inproc_group(int size) {
  if (size < 1) {
    throw Error(ErrorCode::kInvalidArgument, "make_inproc_group: the size is " +
                                                 std::to_string(size) + "; it must be 1 or more");
  }
  const auto group = std::make_shared<inproc::Group>(size);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank) {
    transports.push_back(std::make_unique<inproc::InprocTransport>(group, rank));
  }
  return transports;
}

}  // namespace agoq
