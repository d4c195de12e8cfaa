// Link: an ordered stream of messages between this rank and one peer.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "agoqcomm/transport.h"

namespace agoq {

/// A message on its way to one peer. `data` stays until on_sent(send).
struct Outgoing {
  Tag tag = 0;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t send = 0;    ///< The transport's id of the post.
  std::uint64_t handle = 0;  ///< SendBuffer::handle, or 0 for memory that is no SendBuffer's.
};

/// A message that a peer has begun to send.
struct Incoming {
  int peer = 0;
  std::uint32_t call = 0;
  Tag tag = 0;
  std::size_t bytes = 0;
  /// The whole message, where it lies in shared memory; a posted receive may keep it there.
  const std::byte* in_place = nullptr;
  bool may_wait_in_place = false;  ///< So may a message that nobody has posted yet.
  std::uint64_t handle = 0;        ///< For Link::give_back(), with in_place.
  /// The link has brought others in this turn: whoever takes them may post the receive of this one,
  /// which spares a copy, so it is worth the wait until the next.
  bool is_patient = false;
};

/// Where the payload goes.
struct Placement {
  enum class Action { kNotNow, kCopy, kKept } action = Action::kNotNow;
  std::byte* into = nullptr;  ///< For kCopy.
  std::uint64_t receive = 0;  ///< For kCopy: what on_received() is told.
};

/// What a link tells the transport that owns it.
class Inbox {
 public:
  virtual ~Inbox() = default;
  virtual void on_call(int peer, std::uint32_t call, const Label& label) = 0;
  /// kNotNow makes the link stop at this message and ask again at the next progress().
  virtual Placement on_message(const Incoming& message) = 0;
  virtual void on_received(std::uint64_t receive) = 0;
  virtual void on_sent(std::uint64_t send) = 0;
};

/// What a rank tells its peers when it leaves.
struct Farewell {
  bool failed = false;         ///< False: it has done what it was asked to.
  std::optional<int> culprit;  ///< The rank that made it fail, if one did.
};

/// How a link ended. A peer that says goodbye before it closes is gone but has not failed.
struct LinkEnd {
  bool goodbye = false;
  std::string reason;
  std::optional<int> culprit;  ///< The rank that the peer blamed.
};

/// The end of a link whose peer has sent a failed farewell; `blamed` is 1 + the culprit, or 0.
inline LinkEnd gave_up(std::uint64_t blamed) {
  if (blamed == 0) return {false, "gave up after an error of its own", {}};
  const int culprit = static_cast<int>(blamed - 1);
  return {false, "gave up because rank " + std::to_string(culprit) + " failed", culprit};
}

/// Not thread-safe. No function waits, but for leave() within its bound.
class Link {
 public:
  virtual ~Link() = default;

  virtual void begin_call(std::uint32_t call, const Label& label) = 0;
  virtual void post(const Outgoing& message, Inbox& inbox) = 0;
  /// Sends and receives what can be; true if anything moved.
  virtual bool progress(Inbox& inbox) = 0;
  /// True while posted messages wait to be sent.
  virtual bool has_unsent() const = 0;
  /// The last thing that is sent, once: the memory of unsent messages is not touched afterwards. A
  /// failed rank waits until `patience` to finish a half-sent message, so that it can say why. One
  /// that has unsent messages without having failed says nothing: the peer misses them anyway.
  virtual void leave(const Farewell& farewell, Clock::time_point patience) noexcept = 0;
  /// Returns the memory of a kKept message to the peer.
  virtual void give_back(std::uint64_t handle) = 0;

  /// Set once the peer's stream has ended and all that came before has been taken.
  virtual const std::optional<LinkEnd>& end() const = 0;
  /// Where the peer is, for people.
  virtual const std::string& address() const = 0;

  /// Before and after the thread sleeps in poll(): until rest(false) the peer has to wake it.
  virtual void rest(bool resting) = 0;
  /// False where a peer has no means to wake it: then it sleeps in naps.
  virtual bool wakes() const { return true; }
  /// What to sleep on; fd -1 for nothing.
  virtual pollfd poll_request() const = 0;
  virtual void polled(short events) = 0;
};

}  // namespace agoq
