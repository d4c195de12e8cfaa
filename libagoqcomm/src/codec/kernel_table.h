// The kernels of one ISA for one element format and block length, as codec.cc calls them.
//
// Kernels see whole blocks only; codec.cc checks arguments and pads the short last block. They are
// bit for bit the same function: cpu/scalar.cc is the readable one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "agoqcomm/block_format.h"
#include "agoqcomm/codec.h"
#include "agoqcomm/types.h"
#include "codec/encoded_blocks.h"

namespace agoq {

/// The pieces of a sum, for kernels: Pieces, checked and taken apart.
struct SumOfPieces {
  const std::byte* const* encoded;  ///< One a rank; codes come first.
  std::int64_t scale_offset;        ///< From an entry of `encoded` to its scales.
  ScaleType scale_type;
  int ranks;
  int own_rank;  ///< -1: every piece is encoded.
  const void* own;
  DataType own_type;
  float factor;
};

/// Indexed by the DataType of the values that are read or written.
inline constexpr int kEncodableTypes = 3;
static_assert(static_cast<int>(DataType::kFloat32) == 0 &&
              static_cast<int>(DataType::kBfloat16) == 1 &&
              static_cast<int>(DataType::kFloat16) == 2);

/// Blocks first, first + 1, ..., end - 1 of a buffer, which every pointer given beside it starts.
struct BlockRange {
  std::int64_t first;
  std::int64_t end;
};

struct KernelTable {
  void (*encode[kEncodableTypes])(const void* values, BlockRange blocks, MutableEncodedBlocks out);
  void (*decode[kEncodableTypes])(EncodedBlocks in, BlockRange blocks, void* values);
  /// Past the caches where the ISA can; `values` must be aligned to 64 bytes.
  void (*decode_streamed[kEncodableTypes])(EncodedBlocks in, BlockRange blocks, void* values);
  void (*accumulate)(EncodedBlocks in, BlockRange blocks, float* accumulator);
  void (*sum_decode[kEncodableTypes])(const SumOfPieces& pieces, BlockRange blocks, void* values);
  /// `values` may be null.
  void (*sum_encode[kEncodableTypes])(const SumOfPieces& pieces, BlockRange blocks,
                                      MutableEncodedBlocks out, void* values);
};

// Under cpu/. Those of an ISA are specialised for each format of formats.def, two formats a file at
// most, since they take the compiler long.
const KernelTable* scalar_kernels(ElementFormat format, int block);
template <class Format>
const KernelTable* avx2_kernels(int block);
template <class Format>
const KernelTable* avx512_kernels(int block);

}  // namespace agoq
