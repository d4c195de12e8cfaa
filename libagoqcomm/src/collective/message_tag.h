// The tags of a call's messages, laid out in this one place:
//
//   bits 63..28: part | bits 27..24: phase | bits 23..0: segment of the chunk or part
//
// Tags are unique within a call between an ordered pair of ranks. In the flat algorithms the
// sender's and the receiver's rank tell whose chunk the segment belongs to, and the part is 0; in
// two levels it tells the part of TwoLevelPlan.
#pragma once

#include <cstdint>

#include "agoqcomm/transport.h"

namespace agoq {

enum class Phase : std::uint8_t {
  kPiece = 0,    ///< A rank's own numbers of a segment, on the way to the segment's owner.
  kResult = 1,   ///< An owner's segment, on the way to everyone.
  kLabel = 2,    ///< No payload: the ranks only compare labels.
  kNodeSum = 3,  ///< The sum over a node's ranks, on the way to the owner on another node.
};

inline constexpr int kSegmentBits = 24;
inline constexpr std::int64_t kMaxSegments = std::int64_t{1} << kSegmentBits;

/// `segment` is below kMaxSegments: ChunkPlan sees to it.
constexpr Tag message_tag(Phase phase, std::int64_t segment, int part = 0) {
  return static_cast<Tag>(part) << (kSegmentBits + 4) | static_cast<Tag>(phase) << kSegmentBits |
         static_cast<Tag>(segment);
}

}  // namespace agoq
