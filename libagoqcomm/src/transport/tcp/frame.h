// What travels on a tcp link: frames, each a header and what it announces.
//
//   call frame      header (bytes = 48) | label       before the first message of a call
//   message frame   header              | payload
//   goodbye frame   header (bytes = 0)                the peer will close, and has sent everything
//   failed frame    header (bytes = 0, tag below)     the peer gave up, and sends nothing more
#pragma once

#include <cstdint>

#include "agoqcomm/transport.h"

namespace agoq {

enum class FrameKind : std::uint32_t {
  // The kinds are also what shows that a stream is in step, so they are no small numbers.
  kCall = 0xa60c0001,
  kMessage = 0xa60c0002,
  kGoodbye = 0xa60c0003,
  kFailed = 0xa60c0004,  ///< Its tag is 1 + the rank to blame, or 0.
};

struct FrameHeader {
  FrameKind kind;
  std::uint32_t call;
  std::uint64_t tag;
  std::uint64_t bytes;
};
static_assert(sizeof(FrameHeader) == 24);

}  // namespace agoq
