// Layout of encoded bytes: the same in a message, in a gradient bucket and in a saved activation.
//
//   codes of all `count` elements | 0..3 zero bytes | one scale a block
//
// The codes of a short last block are present for its real elements only: padding never travels.
// The zero bytes align the scales to their own size and exist only after a short last block.
#pragma once

#include <cstdint>

#include "agoqcomm/block_format.h"
#include "agoqcomm/export.h"

namespace agoq {

class AGOQ_API WireLayout {
 public:
  /// `count` elements (0 or more) in `format`, which must be valid.
  WireLayout(const BlockFormat& format, std::int64_t count);

  std::int64_t count() const { return count_; }
  std::int64_t blocks() const { return blocks_; }
  std::int64_t code_bytes() const { return code_bytes_; }
  std::int64_t scale_offset() const { return scale_offset_; }
  std::int64_t scale_bytes() const { return total_bytes_ - scale_offset_; }
  std::int64_t total_bytes() const { return total_bytes_; }

 private:
  std::int64_t count_;
  std::int64_t blocks_;
  std::int64_t code_bytes_;
  std::int64_t scale_offset_;
  std::int64_t total_bytes_;
};

}  // namespace agoq
