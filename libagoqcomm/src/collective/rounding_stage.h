// Values of Rounding::stage: which encoding of a call it is. The same on every device.
#pragma once

#include <cstdint>

namespace agoq {

inline constexpr std::uint32_t kPieceStage = 0;    ///< A rank's own numbers.
inline constexpr std::uint32_t kReducedStage = 1;  ///< An owner's sums.
inline constexpr std::uint32_t kNodeSumStage = 2;  ///< The sum over a node, in two levels.

}  // namespace agoq
