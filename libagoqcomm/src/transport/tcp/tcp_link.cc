#include "transport/tcp/tcp_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/mesh/system_error.h"

namespace agoq {
namespace {

// Frames of one sendmsg(); each takes up to two entries.
constexpr std::size_t kFramesAtOnce = 8;
// After this much of one direction the other gets its turn, and so do the other peers.
constexpr std::size_t kTurnBytes = std::size_t{1} << 20;
// A shorter message is copied in less time than another turn takes.
constexpr std::size_t kPatientBytes = std::size_t{16} << 10;
// What is read and dropped before the socket closes; see ~TcpLink().
constexpr std::size_t kDrainBytes = std::size_t{1} << 20;

void append(std::byte* to, std::size_t& at, const void* from, std::size_t bytes) {
  std::memcpy(to + at, from, bytes);
  at += bytes;
}

}  // namespace

TcpLink::TcpLink(int peer, UniqueFd fd, std::string address)
    : peer_(peer), fd_(std::move(fd)), address_(std::move(address)) {
  const int on = 1;
  // Refused on a socket that is not TCP, where nothing has to be switched off.
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

TcpLink::~TcpLink() {
  if (!left_ || end_) return;
  ::shutdown(fd_.get(), SHUT_WR);
  // A socket closed with bytes unread resets the connection, and with it what is still on its way
  // to the peer.
  for (std::size_t drained = 0; drained < kDrainBytes;) {
    const ssize_t count = ::recv(fd_.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (count <= 0) break;
    drained += static_cast<std::size_t>(count);
  }
}

void TcpLink::leave(const Farewell& farewell, Clock::time_point patience) noexcept {
  if (left_ || end_ || (!frames_.empty() && !farewell.failed)) return;
  left_ = true;
  while (sent_of_front_ != 0 && broken_.empty()) {
    const std::size_t whole = frames_.front().head_bytes + frames_.front().bytes;
    sent_of_front_ += send_once(1);
    if (sent_of_front_ == whole) sent_of_front_ = 0;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(patience - Clock::now());
    if (sent_of_front_ == 0 || left.count() <= 0) break;
    pollfd request{fd_.get(), POLLOUT, 0};
    ::poll(&request, 1, static_cast<int>(left.count()));
  }
  frames_.clear();
  if (std::exchange(sent_of_front_, 0) != 0) return;
  FrameHeader header{FrameKind::kGoodbye, call_, 0, 0};
  if (farewell.failed) {
    header.kind = FrameKind::kFailed;
    if (farewell.culprit) header.tag = static_cast<std::uint64_t>(*farewell.culprit) + 1;
  }
  ::send(fd_.get(), &header, sizeof header, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void TcpLink::begin_call(std::uint32_t call, const Label& label) {
  call_ = call;
  label_ = label;
  label_sent_ = false;
}

void TcpLink::post(const Outgoing& message, Inbox& inbox) {
  if (left_) return;
  const bool was_idle = frames_.empty();
  Frame& frame = frames_.emplace_back();
  if (!label_sent_) {
    const FrameHeader header{FrameKind::kCall, call_, 0, sizeof label_};
    append(frame.head.data(), frame.head_bytes, &header, sizeof header);
    append(frame.head.data(), frame.head_bytes, &label_, sizeof label_);
    label_sent_ = true;
  }
  const FrameHeader header{FrameKind::kMessage, call_, message.tag, message.bytes};
  append(frame.head.data(), frame.head_bytes, &header, sizeof header);
  frame.data = message.data;
  frame.bytes = message.bytes;
  frame.send = message.send;
  if (was_idle) send_some(inbox);
}

bool TcpLink::progress(Inbox& inbox) {
  const std::uint64_t before = taken_;
  const bool sent = send_some(inbox);
  const bool received = receive_some(inbox);
  // A message that was buffered, and has only now found its place, moves nothing on the socket.
  return sent || received || taken_ != before;
}

bool TcpLink::send_some(Inbox& inbox) {
  std::size_t turn = 0;
  while (!frames_.empty() && !end_ && broken_.empty() && turn < kTurnBytes) {
    const std::size_t sent = send_once(kFramesAtOnce);
    if (sent == 0) break;
    turn += sent;
    sent_of_front_ += sent;
    while (!frames_.empty()) {
      const Frame& front = frames_.front();
      const std::size_t whole = front.head_bytes + front.bytes;
      if (sent_of_front_ < whole) break;
      sent_of_front_ -= whole;
      const std::uint64_t send = front.send;
      frames_.pop_front();
      inbox.on_sent(send);
    }
    // A frame sent in part means that the socket is full.
    if (sent_of_front_ != 0) break;
  }
  return turn != 0;
}

std::size_t TcpLink::send_once(std::size_t most_frames) {
  iovec parts[2 * kFramesAtOnce];
  std::size_t count = 0;
  std::size_t skip = sent_of_front_;
  const auto add = [&](const std::byte* data, std::size_t bytes) {
    const std::size_t skipped = std::min(skip, bytes);
    skip -= skipped;
    if (bytes != skipped) {
      parts[count++] = {const_cast<std::byte*>(data + skipped), bytes - skipped};
    }
  };
  for (std::size_t i = 0; i < std::min(frames_.size(), most_frames); ++i) {
    add(frames_[i].head.data(), frames_[i].head_bytes);
    add(frames_[i].data, frames_[i].bytes);
  }
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  // What the peer sent before it broke off is still to be read: receiving ends the link.
  if (sent < 0 && !is_retry(errno)) broken_ = error_text(errno);
  return sent > 0 ? static_cast<std::size_t>(sent) : 0;
}

bool TcpLink::receive_some(Inbox& inbox) {
  bool moved = false;
  std::size_t turn = 0;
  taken_before_ = taken_;
  // A message that was in the buffer counts as well: who saw nothing move would go to sleep, and
  // not look again at the one behind it that has been patient.
  const auto has_moved = [&] { return moved || taken_ != taken_before_; };
  while (!end_ && turn < kTurnBytes) {
    if (!take_buffered(inbox)) {
      // Stopped at a message that has no place yet. A peer that is gone will not wait for one.
      if (!broken_.empty() && taken_ == taken_before_) fail(broken_);
      return has_moved();
    }
    // The buffer is empty or holds part of a header: read on, a body's bytes straight to its place.
    if (buffer_begin_ != 0) {
      std::memmove(buffer_.data(), buffer_.data() + buffer_begin_, buffered());
      buffer_end_ = buffered();
      buffer_begin_ = 0;
    }
    iovec parts[2] = {{body_, body_left_},
                      {buffer_.data() + buffer_end_, buffer_.size() - buffer_end_}};
    const std::size_t asked = parts[0].iov_len + parts[1].iov_len;
    const ssize_t count = ::readv(fd_.get(), parts, 2);
    if (count < 0 && is_retry(errno)) return has_moved();
    if (count < 0) broken_ = error_text(errno);
    if (count <= 0) {
      fail(broken_.empty() ? "closed the connection without a goodbye" : broken_);
      return true;
    }
    moved = true;
    turn += static_cast<std::size_t>(count);
    const std::size_t of_body = std::min(body_left_, static_cast<std::size_t>(count));
    body_ += of_body;
    body_left_ -= of_body;
    buffer_end_ += static_cast<std::size_t>(count) - of_body;
    if (reading_ == Reading::kBody && body_left_ == 0) end_body(inbox);
    if (static_cast<std::size_t>(count) < asked) {
      take_buffered(inbox);
      return true;
    }
  }
  return has_moved();
}

bool TcpLink::take_buffered(Inbox& inbox) {
  for (;;) {
    switch (reading_) {
      case Reading::kHeader:
        if (!take_header(inbox)) return true;
        break;
      case Reading::kPlacing:
        begin_message(inbox);
        if (reading_ == Reading::kPlacing) return false;
        break;
      case Reading::kBody:
        const std::size_t bytes = std::min(body_left_, buffered());
        if (bytes != 0) std::memcpy(body_, buffer_.data() + buffer_begin_, bytes);
        body_ += bytes;
        body_left_ -= bytes;
        buffer_begin_ += bytes;
        if (body_left_ != 0) return true;
        end_body(inbox);
        break;
    }
  }
}

bool TcpLink::take_header(Inbox& inbox) {
  if (end_ || buffered() < sizeof header_) return false;
  std::memcpy(&header_, buffer_.data() + buffer_begin_, sizeof header_);
  const std::byte* const after = buffer_.data() + buffer_begin_ + sizeof header_;
  switch (header_.kind) {
    case FrameKind::kCall: {
      if (header_.bytes != sizeof(Label)) break;
      if (buffered() < sizeof header_ + sizeof(Label)) return false;
      Label label;
      std::memcpy(&label, after, sizeof label);
      buffer_begin_ += sizeof header_ + sizeof label;
      inbox.on_call(peer_, header_.call, label);
      return true;
    }
    case FrameKind::kMessage:
      buffer_begin_ += sizeof header_;
      reading_ = Reading::kPlacing;
      return true;
    case FrameKind::kGoodbye:
      buffer_begin_ += sizeof header_;
      goodbye_ = true;
      return true;
    case FrameKind::kFailed:
      end_ = gave_up(header_.tag);
      return false;
  }
  fail("sent bytes that are no frame of this protocol");
  return false;
}

void TcpLink::begin_message(Inbox& inbox) {
  const bool is_patient = taken_ != taken_before_ && header_.bytes >= kPatientBytes;
  const Placement placement = inbox.on_message(
      {peer_, header_.call, header_.tag, header_.bytes, nullptr, false, 0, is_patient});
  if (placement.action == Placement::Action::kNotNow) return;
  body_ = placement.into;
  body_left_ = header_.bytes;
  receive_ = placement.receive;
  reading_ = Reading::kBody;
}

void TcpLink::end_body(Inbox& inbox) {
  reading_ = Reading::kHeader;
  body_ = nullptr;
  ++taken_;
  inbox.on_received(receive_);
}

void TcpLink::fail(const std::string& reason) {
  if (goodbye_) {
    end_ = LinkEnd{true, "has left the group", {}};
  } else {
    end_ = LinkEnd{false, reason, {}};
  }
}

pollfd TcpLink::poll_request() const {
  if (end_) return {-1, 0, 0};
  int events = 0;
  if (reading_ != Reading::kPlacing) events |= POLLIN;
  if (!frames_.empty()) events |= POLLOUT;
  // With no event asked for, poll() would still report a reset, over and over.
  return {events != 0 ? fd_.get() : -1, static_cast<short>(events), 0};
}

}  // namespace agoq
