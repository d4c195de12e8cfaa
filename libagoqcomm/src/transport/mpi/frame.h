// What travels on an mpi link: frames, each one MPI message of a header and at most kPieceBytes.
//
//   message frame   header | label | first piece    a message begins
//   piece frame     header | next piece             it goes on
//   farewell frame  header                          the last one: the peer leaves
#pragma once

#include <cstddef>
#include <cstdint>

#include "agoqcomm/transport.h"

namespace agoq {

enum class FrameKind : std::uint32_t {
  // No small numbers, so that a foreign message is not taken for a frame.
  kMessage = 0xa60d0001,
  kPiece = 0xa60d0002,
  kGoodbye = 0xa60d0003,
  kFailed = 0xa60d0004,  ///< Its tag is 1 + the rank to blame, or 0.
};

struct FrameHeader {
  FrameKind kind;
  std::uint32_t call;
  std::uint64_t tag;
  std::uint64_t bytes;  ///< Of the whole message.
  Label label;
};
static_assert(sizeof(FrameHeader) == 72);

/// A segment of the default length is one piece; a piece stays in a core's cache between the copies
/// at both ends.
inline constexpr std::size_t kPieceBytes = std::size_t{128} << 10;
inline constexpr std::size_t kFrameBytes = sizeof(FrameHeader) + kPieceBytes;

}  // namespace agoq
