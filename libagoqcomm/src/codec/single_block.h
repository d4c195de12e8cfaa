// One block at a time, through buffers on the stack: the short last block, which is encoded as if
// padded with zeros, and every block of a stochastic encoding. Nothing is read or written past the
// block's real elements.
#pragma once

#include <cstdint>

#include "agoqcomm/block_format.h"
#include "agoqcomm/codec.h"
#include "codec/encoded_blocks.h"
#include "codec/kernel_table.h"

namespace agoq {

class SingleBlock {
 public:
  /// `index` counts blocks; `length` is how many real elements this one has.
  SingleBlock(const BlockFormat& format, const KernelTable& kernels, std::int64_t index, int length)
      : format_(format), kernels_(kernels), index_(index), length_(length) {}

  // Pointers are to the whole buffers, as the kernels take them.
  void encode(const void* values, DataType type, MutableEncodedBlocks out,
              const Rounding& rounding) const;
  void decode(EncodedBlocks in, void* values, DataType type) const;
  void accumulate(EncodedBlocks in, float* accumulator) const;
  void sum_decode(const SumOfPieces& pieces, void* values, DataType type) const;
  /// `values` may be null.
  void sum_encode(const SumOfPieces& pieces, MutableEncodedBlocks out, void* values, DataType type,
                  const Rounding& rounding) const;

 private:
  /// A whole block of fp32; the padding is zero.
  struct Elements {
    alignas(64) float x[kMaxBlock];
  };
  /// A whole block's codes, and its scale; the padding is zero.
  struct Encoded {
    alignas(64) std::uint8_t codes[kMaxBlock];
    alignas(4) std::uint8_t scale[4];
  };

  std::int64_t code_bytes() const;
  std::int64_t code_offset() const;
  Encoded copy_in(EncodedBlocks in) const;
  void load(const void* values, DataType type, Elements& block) const;
  void store(const Elements& block, void* values, DataType type) const;
  void encode(const Elements& block, MutableEncodedBlocks out, const Rounding& rounding) const;
  void sum(const SumOfPieces& pieces, Elements& block) const;

  const BlockFormat& format_;
  const KernelTable& kernels_;
  std::int64_t index_;
  int length_;
};

}  // namespace agoq
