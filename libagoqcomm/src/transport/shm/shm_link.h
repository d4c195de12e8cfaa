// Link through the segments of two ranks of one host.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "transport/mesh/link.h"
#include "transport/mesh/unique_fd.h"
#include "transport/shm/arena.h"
#include "transport/shm/segment.h"

namespace agoq {

/// What a ShmLink is made of.
struct ShmEnds {
  int peer = 0;
  int own_index = 0;  ///< Of this rank among those that share the segments.
  int peer_index = 0;
  std::shared_ptr<Arena> own;
  std::shared_ptr<Segment> theirs;
  /// Carries no messages: a byte wakes a resting peer, and its end tells that the peer has gone.
  UniqueFd doorbell;
  std::string address;
};

class ShmLink final : public Link {
 public:
  explicit ShmLink(ShmEnds ends);

  void begin_call(std::uint32_t call, const Label& label) override;
  void post(const Outgoing& message, Inbox& inbox) override;
  bool progress(Inbox& inbox) override;
  bool has_unsent() const override { return !queue_.empty(); }
  void leave(const Farewell& farewell, Clock::time_point patience) noexcept override;
  void give_back(std::uint64_t handle) override;

  const std::optional<LinkEnd>& end() const override { return end_; }
  const std::string& address() const override { return ends_.address; }
  void rest(bool resting) override;
  pollfd poll_request() const override;
  void polled(short events) override;

 private:
  bool send_some(Inbox& inbox);
  /// One descriptor's worth of the front of the queue; false where there is no room.
  bool send_front(Inbox& inbox);
  bool receive_some(Inbox& inbox);
  /// False where it must wait for a place.
  bool take(const Descriptor& descriptor, Inbox& inbox);
  bool take_piece(const Descriptor& descriptor, Inbox& inbox);
  bool is_sound(const Descriptor::Piece& piece) const;
  bool has_room() const;
  /// The number of a copy slot that the peer has read, or kCopySlots.
  std::uint32_t free_copy() const;
  void publish(const Descriptor& descriptor);
  void release(std::uint32_t slot);
  void wake_peer();
  void fail(const std::string& reason);

  ShmEnds ends_;
  Ring& out_;
  Ring& in_;
  std::optional<LinkEnd> end_;

  std::uint32_t call_ = 0;
  Label label_{};
  bool label_sent_ = true;  ///< No label belongs to messages before the first begin_call().
  std::deque<Outgoing> queue_;
  std::size_t sent_of_front_ = 0;
  bool left_ = false;
  std::uint32_t tail_ = 0;

  std::uint32_t head_ = 0;
  std::byte* body_ = nullptr;  ///< Where the pieces of a message go.
  std::size_t body_got_ = 0;
  std::uint64_t receive_ = 0;
  std::uint32_t kept_copies_ = 0;  ///< Of the peer's copy slots, those that receives keep.
  std::size_t turn_ = 0;

  bool goodbye_ = false;
  bool gave_up_ = false;
  bool hung_up_ = false;
  int idle_ = 0;  ///< Turns in a row without anything to do.
};

}  // namespace agoq
