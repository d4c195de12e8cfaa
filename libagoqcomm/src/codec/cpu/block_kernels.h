// The kernels of every SIMD ISA: one loop over blocks, from which an ISA and an element format fill
// in the vector operations.
//
//   Isa:      Vector (fp32), kLanes, load<type>, store<type>, broadcast, add, mul, canonical,
//             Magnitude with zero_magnitude, max_magnitude, largest
//   Element:  kBits, kMax, Codes (kLanes codes in a register), quantize, dequantize,
//             load, store of a group of 4 registers, or of a block's 2
//
// Include it into one file an ISA only. Everything is a template of types that are local to that
// file, so no symbol compiled for one ISA can be taken for another's.
#pragma once

#include <cstdint>

#include "codec/kernel_table.h"
#include "format/scale.h"

// Loops over a block's vectors unroll whole up to 16, so that the block lives in registers. Longer
// blocks stay in loops, and on the stack.
#define AGOQ_UNROLL _Pragma("GCC unroll 16")
#define AGOQ_INLINE static inline __attribute__((always_inline))

namespace agoq {

/// How far ahead of the loads of a long buffer to fetch: past the page where the hardware stops.
inline constexpr int kPrefetchBytes = 4096;

template <class Isa, class Element, int kBlock>
struct BlockKernels {
  using Vector = typename Isa::Vector;
  using Codes = typename Element::Codes;
  static constexpr int kLanes = Isa::kLanes;
  static constexpr int kVectors = kBlock / kLanes;
  static constexpr int kCodeBytes = kBlock * Element::kBits / 8;
  using Block = Vector[kVectors];

  template <DataType kType>
  static constexpr std::int64_t kValueBytes = kType == DataType::kFloat32 ? 4 : 2;

  /// A block's address as one opaque register. Else gcc computes the addresses of all its vectors
  /// ahead of the branches that use them, which takes more registers than there are.
  template <class Byte>
  AGOQ_INLINE Byte* block_at(Byte* first, std::int64_t offset) {
    Byte* block = first + offset;
    __asm__("" : "+r"(block));
    return block;
  }

  template <DataType kType>
  AGOQ_INLINE const std::uint8_t* values_of(const void* values, std::int64_t b) {
    return block_at(static_cast<const std::uint8_t*>(values), b * kBlock * kValueBytes<kType>);
  }

  template <DataType kType>
  AGOQ_INLINE Vector load(const std::uint8_t* values, int vector) {
    const std::uint8_t* from = values + vector * kLanes * kValueBytes<kType>;
    __builtin_prefetch(from + kPrefetchBytes);
    return Isa::template load<kType>(from);
  }

  template <DataType kType>
  AGOQ_INLINE void store(const Block& x, std::int64_t b, void* values) {
    std::uint8_t* to =
        block_at(static_cast<std::uint8_t*>(values), b * kBlock * kValueBytes<kType>);
    AGOQ_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      Isa::template store<kType>(to + i * kLanes * kValueBytes<kType>, x[i]);
    }
  }

  /// Leaves in `x` what the codes decode to, if asked to: from the registers, since codes that were
  /// just stored are slow to load in other pieces.
  template <bool kDecode>
  AGOQ_INLINE void encode_block(Block& x, std::int64_t b, MutableEncodedBlocks out) {
    // Several maxima, since each waits for the one before.
    constexpr int kWays = kVectors < 4 ? kVectors : 4;
    typename Isa::Magnitude largest[kWays];
    AGOQ_UNROLL
    for (int i = 0; i < kWays; ++i) largest[i] = Isa::zero_magnitude();
    AGOQ_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      largest[i % kWays] = Isa::max_magnitude(largest[i % kWays], x[i]);
    }
    const std::uint32_t absmax = Isa::template largest<kWays>(largest);
    const BlockScale scale = make_scale(absmax, Element::kMax, out.scale_type);
    store_scale(out.scales, b, out.scale_type, scale.scale);
    if (scale.inverse == 0) [[unlikely]] {  // and perhaps a NaN in x, which has no code
      AGOQ_UNROLL
      for (int i = 0; i < kVectors; ++i) x[i] = Isa::broadcast(0.0f);
    }
    const Vector inverse = Isa::broadcast(scale.inverse);
    std::uint8_t* codes = block_at(out.codes, b * kCodeBytes);
    constexpr int kGroup = kVectors < 4 ? kVectors : 4;
    AGOQ_UNROLL
    for (int i = 0; i < kVectors; i += kGroup) {
      Codes group[kGroup];
      AGOQ_UNROLL
      for (int j = 0; j < kGroup; ++j) {
        group[j] = Element::quantize(x[i + j], inverse);
        if constexpr (kDecode) {
          x[i + j] = Element::dequantize(group[j], Isa::broadcast(scale.scale));
        }
      }
      Element::store(group, codes + i * kLanes * Element::kBits / 8);
    }
  }

  /// NaN only as the canonical one: the scale's, which every product with it is too.
  AGOQ_INLINE Vector decode_vector(const std::uint8_t* codes, int vector, Vector scale) {
    return Element::dequantize(Element::load(codes + vector * kLanes * Element::kBits / 8), scale);
  }

  AGOQ_INLINE void decode_block(EncodedBlocks in, std::int64_t b, Block& x) {
    const Vector scale = Isa::broadcast(load_scale(in.scales, b, in.scale_type));
    const std::uint8_t* codes = block_at(in.codes, b * kCodeBytes);
    AGOQ_UNROLL
    for (int i = 0; i < kVectors; ++i) x[i] = decode_vector(codes, i, scale);
  }

  /// Multiplies, then adds, in two roundings: a product past fp32's range must become infinite as
  /// the decoded piece would, which one fused operation undoes.
  AGOQ_INLINE void add_codes(EncodedBlocks in, std::int64_t b, Block& sum) {
    const Vector scale = Isa::broadcast(load_scale(in.scales, b, in.scale_type));
    const std::uint8_t* codes = block_at(in.codes, b * kCodeBytes);
    AGOQ_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      sum[i] = Isa::add(sum[i], decode_vector(codes, i, scale));
    }
  }

  template <DataType kType>
  AGOQ_INLINE void add_values(const void* values, std::int64_t b, Block& sum) {
    const std::uint8_t* from = values_of<kType>(values, b);
    AGOQ_UNROLL
    for (int i = 0; i < kVectors; ++i) sum[i] = Isa::add(sum[i], load<kType>(from, i));
  }

  AGOQ_INLINE void canonicalize(Block& x) {
    AGOQ_UNROLL
    for (int i = 0; i < kVectors; ++i) x[i] = Isa::canonical(x[i]);
  }

  AGOQ_INLINE void sum_block(const SumOfPieces& pieces, std::int64_t b, Block& sum) {
    // -0 is what leaves every first piece as it is, a -0 of the owner's too.
    AGOQ_UNROLL
    for (int i = 0; i < kVectors; ++i) sum[i] = Isa::broadcast(-0.0f);
    for (int rank = 0; rank < pieces.ranks; ++rank) {
      if (rank != pieces.own_rank) {
        const auto* codes = reinterpret_cast<const std::uint8_t*>(pieces.encoded[rank]);
        add_codes({codes, codes + pieces.scale_offset, pieces.scale_type}, b, sum);
      } else if (pieces.own_type == DataType::kFloat32) {
        add_values<DataType::kFloat32>(pieces.own, b, sum);
      } else if (pieces.own_type == DataType::kBfloat16) {
        add_values<DataType::kBfloat16>(pieces.own, b, sum);
      } else {
        add_values<DataType::kFloat16>(pieces.own, b, sum);
      }
    }
    if (pieces.factor != 1.0f) {
      const Vector factor = Isa::broadcast(pieces.factor);
      AGOQ_UNROLL
      for (int i = 0; i < kVectors; ++i) sum[i] = Isa::mul(sum[i], factor);
    }
  }

  template <DataType kType>
  static void encode(const void* values, std::int64_t blocks, MutableEncodedBlocks out) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::uint8_t* from = values_of<kType>(values, b);
      Block x;
      AGOQ_UNROLL
      for (int i = 0; i < kVectors; ++i) x[i] = load<kType>(from, i);
      encode_block<false>(x, b, out);
    }
  }

  template <DataType kType>
  static void decode(EncodedBlocks in, std::int64_t blocks, void* values) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      Block x;
      decode_block(in, b, x);
      store<kType>(x, b, values);
    }
  }

  static void accumulate(EncodedBlocks in, std::int64_t blocks, float* accumulator) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::uint8_t* from = values_of<DataType::kFloat32>(accumulator, b);
      Block x;
      AGOQ_UNROLL
      for (int i = 0; i < kVectors; ++i) x[i] = load<DataType::kFloat32>(from, i);
      add_codes(in, b, x);
      canonicalize(x);
      store<DataType::kFloat32>(x, b, accumulator);
    }
  }

  template <DataType kType>
  static void sum_decode(const SumOfPieces& shared_pieces, std::int64_t blocks, void* values) {
    const SumOfPieces pieces = shared_pieces;  // which no store can alter
    for (std::int64_t b = 0; b < blocks; ++b) {
      Block sum;
      sum_block(pieces, b, sum);
      canonicalize(sum);
      store<kType>(sum, b, values);
    }
  }

  template <DataType kType>
  static void sum_encode(const SumOfPieces& shared_pieces, std::int64_t blocks,
                         MutableEncodedBlocks out, void* values) {
    const SumOfPieces pieces = shared_pieces;
    for (std::int64_t b = 0; b < blocks; ++b) {
      Block sum;
      sum_block(pieces, b, sum);
      if (values == nullptr) {
        encode_block<false>(sum, b, out);
      } else {
        encode_block<true>(sum, b, out);
        store<kType>(sum, b, values);
      }
    }
  }
};

}  // namespace agoq
