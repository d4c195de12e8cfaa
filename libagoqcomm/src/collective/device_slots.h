// How a call's workspace on the device is divided: one slot a message of an open step.
//
// Steps s and s + 2 share their slots. That needs no event of its own: on the compute stream, what
// reads the slots of step s stands before what fills those of step s + 2 (device_collectives.h has
// the order), and the wire follows the compute stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "agoqcomm/types.h"
#include "collective/chunk_plan.h"

namespace agoq {

/// Value type.
class DeviceSlots {
 public:
  /// `operation` is an all-reduce, a reduce-scatter or an all-gather, `message_bytes` those of the
  /// plan's longest segment.
  DeviceSlots(Operation operation, const ChunkPlan& plan, std::int64_t message_bytes,
              std::byte* workspace);

  /// Bytes of workspace that the slots take.
  std::size_t bytes() const;

  /// This rank's piece for `peer`, one of the others.
  std::byte* sent_piece(int rank, int peer, std::int64_t step) const;
  /// The piece that `peer`, one of the others, has of this rank's segment.
  std::byte* received_piece(int rank, int peer, std::int64_t step) const;
  /// The segment that `owner`, perhaps this rank, gives to everyone.
  std::byte* result(int owner, std::int64_t step) const;

 private:
  std::byte* slot(std::int64_t step, std::size_t index) const {
    return workspace_ + (static_cast<std::size_t>(step % 2) * slots_ + index) * slot_bytes_;
  }

  std::size_t pieces_;      // Of each direction, in one step.
  std::size_t slots_;       // Of one step.
  std::size_t slot_bytes_;  // A multiple of kSlotAlignment.
  std::size_t steps_;       // That have slots: 1 or 2.
  std::byte* workspace_;
};

inline constexpr std::size_t kSlotAlignment = 256;

}  // namespace agoq
