// Link over a connected stream socket.
#pragma once

#include <array>
#include <deque>
#include <optional>
#include <string>

#include "transport/mesh/link.h"
#include "transport/mesh/unique_fd.h"
#include "transport/tcp/frame.h"

namespace agoq {

class TcpLink final : public Link {
 public:
  /// `fd` is connected and non-blocking.
  TcpLink(int peer, UniqueFd fd, std::string address);
  ~TcpLink() override;

  void begin_call(std::uint32_t call, const Label& label) override;
  void post(const Outgoing& message, Inbox& inbox) override;
  bool progress(Inbox& inbox) override;
  bool has_unsent() const override { return !frames_.empty(); }
  void leave(const Farewell& farewell, Clock::time_point patience) noexcept override;
  void give_back(std::uint64_t) override {}

  const std::optional<LinkEnd>& end() const override { return end_; }
  const std::string& address() const override { return address_; }
  void rest(bool) override {}
  pollfd poll_request() const override;
  void polled(short) override {}

 private:
  /// A queued message; before the first of a call also the call's label.
  struct Frame {
    std::array<std::byte, 2 * sizeof(FrameHeader) + sizeof(Label)> head;
    std::size_t head_bytes = 0;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::uint64_t send = 0;
  };

  bool send_some(Inbox& inbox);
  /// One sendmsg() of what is next; 0 where the socket is full or broken.
  std::size_t send_once(std::size_t most_frames);
  bool receive_some(Inbox& inbox);
  /// Takes what is buffered; false where it must stop until more has come or can be placed.
  bool take_buffered(Inbox& inbox);
  bool take_header(Inbox& inbox);
  void begin_message(Inbox& inbox);
  void end_body(Inbox& inbox);
  void fail(const std::string& reason);
  std::size_t buffered() const { return buffer_end_ - buffer_begin_; }

  int peer_;
  UniqueFd fd_;
  std::string address_;
  std::optional<LinkEnd> end_;

  std::uint32_t call_ = 0;
  Label label_{};
  bool label_sent_ = true;  ///< No label belongs to messages before the first begin_call().
  std::deque<Frame> frames_;
  std::size_t sent_of_front_ = 0;
  bool left_ = false;
  std::string broken_;  ///< Why sending failed; the end of the stream may still be unread.

  // Headers and small messages are read many at a time into the buffer; a body's bytes go to their
  // place directly, but for those that came along with its header.
  std::array<std::byte, 4096> buffer_;
  std::size_t buffer_begin_ = 0;
  std::size_t buffer_end_ = 0;
  enum class Reading { kHeader, kPlacing, kBody } reading_ = Reading::kHeader;
  FrameHeader header_{};
  bool goodbye_ = false;
  std::byte* body_ = nullptr;
  std::size_t body_left_ = 0;
  std::uint64_t receive_ = 0;
  std::uint64_t taken_ = 0;         ///< Messages received in full.
  std::uint64_t taken_before_ = 0;  ///< Those of earlier turns.
};

}  // namespace agoq
