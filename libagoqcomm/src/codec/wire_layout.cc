#include "agoqcomm/wire_layout.h"

#include <string>

#include "agoqcomm/error.h"
#include "format/formats.h"

namespace agoq {

WireLayout::WireLayout(const BlockFormat& format, std::int64_t count) : count_(count) {
  format.validate();
  if (count < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "WireLayout: count is " + std::to_string(count) + "; it must be 0 or more");
  }
  const std::int64_t scale_size = format.scale == ScaleType::kBfloat16 ? 2 : 4;
  const int bits = find_format(format.element)->bits;
  const std::int64_t whole = count / format.block;
  const std::int64_t rest = count % format.block;
  blocks_ = whole + (rest != 0 ? 1 : 0);
  // By blocks, so that no product of a large count and the bits of a code can overflow.
  code_bytes_ = whole * (format.block * bits / 8) + (rest * bits + 7) / 8;
  scale_offset_ = (code_bytes_ + scale_size - 1) / scale_size * scale_size;
  total_bytes_ = scale_offset_ + blocks_ * scale_size;
}

}  // namespace agoq
