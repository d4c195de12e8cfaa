#include <string>

#include "agoqcomm/error.h"
#include "agoqcomm/row_codec.h"
#include "agoqcomm/wire_layout.h"
#include "codec/encoded_blocks.h"

namespace agoq {

RowLayout::RowLayout(const BlockFormat& format, RowShape shape) : shape_(shape) {
  if (shape.rows < 0 || shape.width < 1 || shape.width > kMaxRowWidth) {
    throw Error(ErrorCode::kInvalidArgument, "RowLayout: " + std::to_string(shape.rows) +
                                                 " rows of " + std::to_string(shape.width) +
                                                 " elements; rows must be 0 or more, of 1 to " +
                                                 std::to_string(kMaxRowWidth) + " elements");
  }
  const WireLayout row(format, shape.width);
  row_blocks_ = row.blocks();
  row_code_bytes_ = row.code_bytes();
  row_scale_bytes_ = row.scale_bytes();
  const std::int64_t alignment = scale_size(format.scale);
  scale_offset_ = (code_bytes() + alignment - 1) / alignment * alignment;
}

}  // namespace agoq
