// The reference: what every other kernel, on any ISA or device, must equal byte for byte.
#include <algorithm>
#include <cstdint>

#include "codec/cpu/make_tables.h"
#include "codec/values.h"
#include "format/formats.h"
#include "format/scale.h"

namespace agoq {
namespace {

template <class Format, int kBlock>
struct Scalar {
  static constexpr int kCodeBytes = kBlock * Format::kBits / 8;

  static void encode_block(const float* x, std::int64_t b, MutableEncodedBlocks out) {
    std::uint32_t absmax = 0;
    for (int i = 0; i < kBlock; ++i) absmax = std::max(absmax, abs_bits(x[i]));
    const BlockScale scale = make_scale(absmax, Format::kMax, out.scale_type);
    store_scale(out.scales, b, out.scale_type, scale.scale);
    std::uint8_t* codes = out.codes + b * kCodeBytes;
    for (int i = 0; i < kBlock; ++i) {
      Format::put(codes, i, scale.inverse == 0 ? 0 : Format::encode(x[i], scale.inverse));
    }
  }

  static void decode_block(EncodedBlocks in, std::int64_t b, float* x) {
    const float scale = load_scale(in.scales, b, in.scale_type);
    const std::uint8_t* codes = in.codes + b * kCodeBytes;
    for (int i = 0; i < kBlock; ++i) x[i] = Format::decode(Format::get(codes, i), scale);
  }

  /// Piece `rank` of block `b`, in fp32.
  static void load_piece(const SumOfPieces& pieces, int rank, std::int64_t b, float* x) {
    if (rank == pieces.own_rank) {
      for (int i = 0; i < kBlock; ++i) {
        x[i] = load_value(pieces.own_type, pieces.own, b * kBlock + i);
      }
      return;
    }
    const auto* codes = reinterpret_cast<const std::uint8_t*>(pieces.encoded[rank]);
    decode_block({codes, codes + pieces.scale_offset, pieces.scale_type}, b, x);
  }

  static void sum_block(const SumOfPieces& pieces, std::int64_t b, float* sum) {
    load_piece(pieces, 0, b, sum);
    for (int rank = 1; rank < pieces.ranks; ++rank) {
      float piece[kBlock];
      load_piece(pieces, rank, b, piece);
      for (int i = 0; i < kBlock; ++i) sum[i] = add(sum[i], piece[i]);
    }
    for (int i = 0; i < kBlock; ++i) {
      if (pieces.factor != 1.0f) sum[i] = mul(sum[i], pieces.factor);
      sum[i] = canonical(sum[i]);
    }
  }

  template <DataType kType>
  static void store_block(const float* x, std::int64_t b, void* values) {
    for (int i = 0; i < kBlock; ++i) store_value<kType>(values, b * kBlock + i, x[i]);
  }

  template <DataType kType>
  static void encode(const void* values, BlockRange blocks, MutableEncodedBlocks out) {
    for (std::int64_t b = blocks.first; b < blocks.end; ++b) {
      float x[kBlock];
      for (int i = 0; i < kBlock; ++i) x[i] = load_value<kType>(values, b * kBlock + i);
      encode_block(x, b, out);
    }
  }

  template <DataType kType>
  static void decode(EncodedBlocks in, BlockRange blocks, void* values) {
    for (std::int64_t b = blocks.first; b < blocks.end; ++b) {
      float x[kBlock];
      decode_block(in, b, x);
      store_block<kType>(x, b, values);
    }
  }

  template <DataType kType>
  static void decode_streamed(EncodedBlocks in, BlockRange blocks, void* values) {
    decode<kType>(in, blocks, values);
  }

  static void accumulate(EncodedBlocks in, BlockRange blocks, float* accumulator) {
    constexpr DataType kType = DataType::kFloat32;  // but of any alignment
    for (std::int64_t b = blocks.first; b < blocks.end; ++b) {
      float x[kBlock];
      decode_block(in, b, x);
      for (int i = 0; i < kBlock; ++i) {
        x[i] = canonical(add(load_value<kType>(accumulator, b * kBlock + i), x[i]));
      }
      store_block<kType>(x, b, accumulator);
    }
  }

  template <DataType kType>
  static void sum_decode(const SumOfPieces& pieces, BlockRange blocks, void* values) {
    for (std::int64_t b = blocks.first; b < blocks.end; ++b) {
      float sum[kBlock];
      sum_block(pieces, b, sum);
      store_block<kType>(sum, b, values);
    }
  }

  template <DataType kType>
  static void sum_encode(const SumOfPieces& pieces, BlockRange blocks, MutableEncodedBlocks out,
                         void* values) {
    for (std::int64_t b = blocks.first; b < blocks.end; ++b) {
      float sum[kBlock];
      sum_block(pieces, b, sum);
      encode_block(sum, b, out);
      if (values == nullptr) continue;
      decode_block({out.codes, out.scales, out.scale_type}, b, sum);
      store_block<kType>(sum, b, values);
    }
  }
};

}  // namespace

const KernelTable* scalar_kernels(ElementFormat format, int block) {
  return table_for<Scalar>(format, block);
}

}  // namespace agoq
