#include "transport/mpi/mpi_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "agoqcomm/error.h"
#include "transport/mpi/orphans.h"

namespace agoq {
namespace {

// One being filled, one on its way, one being read, and one to spare.
constexpr std::size_t kSlots = 4;

// MPI may tell of a peer's goodbye before it tells that the peer has read what was sent to it.
constexpr auto kGoodbyePatience = std::chrono::milliseconds(200);

}  // namespace

MpiLink::MpiLink(std::shared_ptr<const MpiGroup> group, int peer)
    : group_(std::move(group)),
      peer_(peer),
      address_("MPI rank " + std::to_string(peer)),
      sending_(kSlots),
      receiving_(kSlots) {
  for (Slot& slot : sending_) slot.frame = std::make_unique_for_overwrite<std::byte[]>(kFrameBytes);
  try {
    for (Slot& slot : receiving_) {
      slot.frame = std::make_unique_for_overwrite<std::byte[]>(kFrameBytes);
      post_receive(slot);
      if (end_) throw Error(ErrorCode::kSystem, address_ + ": " + end_->reason, peer);
    }
  } catch (...) {
    leave_slots_to_mpi();  // No destructor follows, but MPI may write where receives are posted.
    throw;
  }
}

MpiLink::~MpiLink() { leave_slots_to_mpi(); }

void MpiLink::leave_slots_to_mpi() noexcept {
  for (Slot& slot : receiving_) {
    if (slot.request != MPI_REQUEST_NULL && mpi_is_running()) MPI_Cancel(&slot.request);
    adopt_orphan(slot.request, std::move(slot.frame));
  }
  for (Slot& slot : sending_) adopt_orphan(slot.request, std::move(slot.frame));
}

void MpiLink::leave(const Farewell& farewell, Clock::time_point) noexcept {
  if (left_ || end_ || (has_unsent() && !farewell.failed) || !mpi_is_running()) return;
  left_ = true;
  messages_.clear();
  FrameHeader header{FrameKind::kGoodbye, call_, 0, 0, {}};
  if (farewell.failed) {
    header.kind = FrameKind::kFailed;
    if (farewell.culprit) header.tag = static_cast<std::uint64_t>(*farewell.culprit) + 1;
  }
  auto memory = std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[sizeof header]);
  if (memory == nullptr) return;
  std::memcpy(memory.get(), &header, sizeof header);
  MPI_Request request = MPI_REQUEST_NULL;
  // Not MPI_Issend: nobody may be there to receive it.
  if (MPI_Isend(memory.get(), sizeof header, MPI_BYTE, peer_, group_->tag(), group_->comm(),
                &request) == MPI_SUCCESS) {
    adopt_orphan(request, std::move(memory));
  }
}

void MpiLink::begin_call(std::uint32_t call, const Label& label) {
  group_->check_thread();
  call_ = call;
  label_ = label;
}

void MpiLink::post(const Outgoing& message, Inbox& inbox) {
  if (left_) return;
  messages_.push_back({{FrameKind::kMessage, call_, message.tag, message.bytes, label_},
                       message.data,
                       0,
                       message.send});
  send_some(inbox);
}

bool MpiLink::progress(Inbox& inbox) {
  const bool sent = send_some(inbox);
  const bool received = receive_some(inbox);
  if (goodbye_ && !end_ && (!has_unsent() || Clock::now() >= *goodbye_ + kGoodbyePatience)) {
    end_ = LinkEnd{true, "has left the group", {}};
  }
  return sent || received || end_;
}

bool MpiLink::send_some(Inbox& inbox) {
  bool moved = false;
  while (in_flight_ != 0 && !end_) {
    Slot& oldest = sending_[(next_send_ + kSlots - in_flight_) % kSlots];
    int done = 0;
    const int error = MPI_Test(&oldest.request, &done, MPI_STATUS_IGNORE);
    if (error != MPI_SUCCESS) {
      fail("cannot be sent to: " + mpi_error_text(error));
      return true;
    }
    if (done == 0) break;
    --in_flight_;
    moved = true;
    if (const std::uint64_t send = std::exchange(oldest.send, 0)) inbox.on_sent(send);
  }
  if (!messages_.empty() && in_flight_ != kSlots && !end_) {
    fill_slots();
    moved = true;
  }
  return moved;
}

void MpiLink::fill_slots() {
  while (!messages_.empty() && in_flight_ != kSlots) {
    Message& message = messages_.front();
    Slot& slot = sending_[next_send_];
    const std::size_t bytes = std::min(message.header.bytes - message.sent, kPieceBytes);
    std::memcpy(slot.frame.get(), &message.header, sizeof message.header);
    if (bytes != 0) {
      std::memcpy(slot.frame.get() + sizeof message.header, message.data + message.sent, bytes);
    }
    // Complete only once the peer has it: sends_complete() says so of messages, and MPI never holds
    // more than the slots.
    const int error = MPI_Issend(slot.frame.get(), static_cast<int>(sizeof message.header + bytes),
                                 MPI_BYTE, peer_, group_->tag(), group_->comm(), &slot.request);
    if (error != MPI_SUCCESS) {
      fail("cannot be sent to: " + mpi_error_text(error));
      return;
    }
    next_send_ = (next_send_ + 1) % kSlots;
    ++in_flight_;
    message.header.kind = FrameKind::kPiece;
    message.sent += bytes;
    if (message.sent != message.header.bytes) continue;
    slot.send = message.send;
    messages_.pop_front();
  }
}

void MpiLink::post_receive(Slot& slot) {
  const int error = MPI_Irecv(slot.frame.get(), static_cast<int>(kFrameBytes), MPI_BYTE, peer_,
                              group_->tag(), group_->comm(), &slot.request);
  if (error == MPI_SUCCESS) return;
  slot.request = MPI_REQUEST_NULL;
  fail("cannot be received from: " + mpi_error_text(error));
}

bool MpiLink::receive_some(Inbox& inbox) {
  bool moved = false;
  // A turn of all slots; then the other direction and the other peers have theirs.
  for (std::size_t turn = 0; turn < kSlots && !end_ && !goodbye_; ++turn) {
    Slot& slot = receiving_[next_receive_];
    if (!arrived_bytes_) {
      MPI_Status status;
      int done = 0;
      int count = 0;
      int error = MPI_Test(&slot.request, &done, &status);
      if (error == MPI_SUCCESS && done == 0) break;
      if (error == MPI_SUCCESS) error = MPI_Get_count(&status, MPI_BYTE, &count);
      if (error != MPI_SUCCESS) {
        fail("cannot be received from: " + mpi_error_text(error));
        return true;
      }
      arrived_bytes_ = static_cast<std::size_t>(count);
    }
    if (!take_frame(slot.frame.get(), *arrived_bytes_, inbox)) break;
    arrived_bytes_.reset();
    moved = true;
    if (end_ || goodbye_) break;
    post_receive(slot);
    next_receive_ = (next_receive_ + 1) % kSlots;
  }
  return moved;
}

bool MpiLink::take_frame(const std::byte* frame, std::size_t bytes, Inbox& inbox) {
  FrameHeader header;
  if (bytes < sizeof header) {
    fail("sent bytes that are no frame of this protocol");
    return true;
  }
  std::memcpy(&header, frame, sizeof header);
  const std::size_t piece = bytes - sizeof header;
  switch (header.kind) {
    case FrameKind::kGoodbye:
      goodbye_ = Clock::now();
      return true;
    case FrameKind::kFailed:
      end_ = gave_up(header.tag);
      return true;
    case FrameKind::kMessage:
      if (in_message_ || piece > header.bytes) break;
      if (!take_message(header, inbox)) return false;
      [[fallthrough]];
    case FrameKind::kPiece:
      if (!in_message_ || piece > bytes_left_) break;
      if (piece != 0) std::memcpy(into_, frame + sizeof header, piece);
      into_ += piece;
      bytes_left_ -= piece;
      if (bytes_left_ != 0) return true;
      in_message_ = false;
      inbox.on_received(receive_);
      return true;
  }
  fail("sent bytes that are no frame of this protocol");
  return true;
}

bool MpiLink::take_message(const FrameHeader& header, Inbox& inbox) {
  if (peer_call_ != header.call) {
    peer_call_ = header.call;
    inbox.on_call(peer_, header.call, header.label);
  }
  const Placement placement =
      inbox.on_message({peer_, header.call, header.tag, header.bytes, nullptr, false, 0});
  if (placement.action == Placement::Action::kNotNow) return false;
  in_message_ = true;
  into_ = placement.into;
  bytes_left_ = header.bytes;
  receive_ = placement.receive;
  return true;
}

void MpiLink::fail(const std::string& reason) { end_ = LinkEnd{false, reason, {}}; }

}  // namespace agoq
