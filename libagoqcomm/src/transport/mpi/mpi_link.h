// Link over MPI messages between this rank and one peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/mesh/link.h"
#include "transport/mpi/frame.h"
#include "transport/mpi/mpi_group.h"

namespace agoq {

/// Two rings of slots, one a direction, of one frame each. MPI is given the slots alone: a message
/// is copied into and out of them, so that the caller's memory is his again when a call fails, and
/// a peer that does not read holds this rank back instead of filling MPI's buffers.
class MpiLink final : public Link {
 public:
  MpiLink(std::shared_ptr<const MpiGroup> group, int peer);
  ~MpiLink() override;

  void begin_call(std::uint32_t call, const Label& label) override;
  void post(const Outgoing& message, Inbox& inbox) override;
  bool progress(Inbox& inbox) override;
  bool has_unsent() const override { return !messages_.empty() || in_flight_ != 0; }
  void leave(const Farewell& farewell, Clock::time_point patience) noexcept override;
  void give_back(std::uint64_t) override {}

  const std::optional<LinkEnd>& end() const override { return end_; }
  const std::string& address() const override { return address_; }
  void rest(bool) override {}
  bool wakes() const override { return false; }
  pollfd poll_request() const override { return {-1, 0, 0}; }
  void polled(short) override {}

 private:
  struct Slot {
    std::unique_ptr<std::byte[]> frame;
    MPI_Request request = MPI_REQUEST_NULL;
    std::uint64_t send = 0;  ///< The post whose last frame it is, or 0.
  };
  struct Message {
    FrameHeader header;
    const std::byte* data;
    std::size_t sent;
    std::uint64_t send;
  };

  /// Takes back the slots that the peer has read, and fills them again.
  bool send_some(Inbox& inbox);
  void fill_slots();
  bool receive_some(Inbox& inbox);
  void post_receive(Slot& slot);
  /// False where the frame has to wait for a place.
  bool take_frame(const std::byte* frame, std::size_t bytes, Inbox& inbox);
  bool take_message(const FrameHeader& header, Inbox& inbox);
  void fail(const std::string& reason);
  /// Withdraws the receives, and keeps memory that MPI may still use alive without this object.
  void leave_slots_to_mpi() noexcept;

  const std::shared_ptr<const MpiGroup> group_;
  const int peer_;
  const std::string address_;
  std::optional<LinkEnd> end_;

  std::uint32_t call_ = 0;
  Label label_{};
  std::vector<Slot> sending_;
  std::size_t next_send_ = 0;
  std::size_t in_flight_ = 0;  ///< Slots before next_send_ that the peer has not read.
  std::deque<Message> messages_;
  bool left_ = false;

  std::vector<Slot> receiving_;
  std::size_t next_receive_ = 0;
  std::optional<std::size_t> arrived_bytes_;  ///< Of a frame that waits in its slot for a place.
  std::optional<std::uint32_t> peer_call_;
  std::optional<Clock::time_point> goodbye_;  ///< When the peer's came; it sends nothing more.
  bool in_message_ = false;
  std::byte* into_ = nullptr;
  std::size_t bytes_left_ = 0;
  std::uint64_t receive_ = 0;
};

}  // namespace agoq
