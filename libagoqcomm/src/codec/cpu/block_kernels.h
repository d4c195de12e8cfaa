// The kernels of every SIMD ISA: one loop over blocks, from which an ISA and an element format fill
// in the vector operations.
//
//   Isa:      Vector (fp32), kLanes, kBytes of a register, load<type>, store<type>, stream<type>,
//             store_two<type, streamed>, broadcast, add, mul, multiply_add, canonical, has_nan of
//             two; Magnitude with zero_magnitude, max_magnitude of a Vector, max_raw<type> of a
//             register of the caller's elements, and fold<type>, which leaves four lanes that hold
//             the fp32 magnitudes' largest
//   Element:  kBits, kMax, Codes (kLanes codes in a register), quantize, numbers (that codes stand
//             for, before the scale), load of packed codes as numbers, store of a group of 4
//             registers, or of a block's 2; kCompact, for loops that are unrolled less and sums
//             that are not inlined, which takes the compiler less than half the time; where it is
//             cheaper, load_group of a group's codes instead of load
//
// Encoders take four blocks at a time: first the magnitudes of all four, then their scales at once,
// then the codes. The elements are read again for that, from L1, which costs less than to wait for
// each block's two divisions.
//
// Include it into one file an ISA only. Everything is a template of types that are local to that
// file, so no symbol compiled for one ISA can be taken for another's.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "codec/cpu/code_groups.h"
#include "codec/cpu/four_scales.h"
#include "codec/cpu/prefetch_pages.h"
#include "codec/kernel_table.h"
#include "format/scale.h"

namespace agoq {

template <class Isa, class Element, int kBlock>
struct BlockKernels {
  using Vector = typename Isa::Vector;
  using Magnitude = typename Isa::Magnitude;
  using Codes = typename Element::Codes;
  static constexpr int kLanes = Isa::kLanes;
  static constexpr int kVectors = kBlock / kLanes;
  static constexpr int kCodeBytes = kBlock * Element::kBits / 8;
  static constexpr int kVectorCodeBytes = kLanes * Element::kBits / 8;
  /// Vectors that are summed together: half the registers of AVX2.
  static constexpr int kChunk = std::min(kVectors, 8);
  using Chunk = Vector[kChunk];
  /// Vectors whose codes are stored together.
  static constexpr int kGroup = std::min(kVectors, 4);
  /// Vectors, and groups of them, in the body of a loop.
  static constexpr int kSpan = Element::kCompact ? kGroup : std::min(kVectors, 16);
  static constexpr int kGroups = Element::kCompact ? 1 : std::min(kVectors / kGroup, 16);
  using Groups = CodeGroups<Isa, Element, kGroup>;
  static constexpr int kTogether = Groups::kTogether;
  static constexpr int kBlocksAtOnce = 4;

  template <DataType kType>
  static constexpr int kValueBytes = kType == DataType::kFloat32 ? 4 : 2;
  template <DataType kType>
  static constexpr int kVectorBytes = kLanes * kValueBytes<kType>;
  template <DataType kType>
  static constexpr int kBlockBytes = kBlock * kValueBytes<kType>;

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
    return block_at(static_cast<const std::uint8_t*>(values), b * kBlockBytes<kType>);
  }
  template <DataType kType>
  AGOQ_INLINE std::uint8_t* values_of(void* values, std::int64_t b) {
    return block_at(static_cast<std::uint8_t*>(values), b * kBlockBytes<kType>);
  }

  // --- encoding -------------------------------------------------------------------------------

  template <DataType kType, int kCount>
  AGOQ_INLINE void encode_blocks(const void* values, std::int64_t b, MutableEncodedBlocks out,
                                 bool prefetch) {
    constexpr int kRegisters = kBlockBytes<kType> / Isa::kBytes;
    constexpr int kWays = std::min(kRegisters, 2);  // since each maximum waits for the one before
    Magnitude largest[kCount];
    for (int g = 0; g < kCount; ++g) {
      if (prefetch) {
        prefetch_next_run<kBlockBytes<kType>>(static_cast<const std::uint8_t*>(values), b + g);
      }
      const std::uint8_t* from = values_of<kType>(values, b + g);
      Magnitude ways[2] = {Isa::zero_magnitude(), Isa::zero_magnitude()};
      AGOQ_UNROLL
      for (int i = 0; i < kRegisters; ++i) {
        ways[i % kWays] = Isa::template max_raw<kType>(ways[i % kWays], from + i * Isa::kBytes);
      }
      largest[g] = Isa::template max_of<kType>(ways[0], ways[1]);
    }
    const FourScales scales = scale_blocks<Isa, kType>(largest, Element::kMax, b, out);
    for (int g = 0; g < kCount; ++g) {
      std::uint8_t* codes = block_at(out.codes, (b + g) * kCodeBytes);
      if (scales.zero_codes >> g & 1) [[unlikely]] {
        std::memset(codes, 0, kCodeBytes);
        continue;
      }
      const std::uint8_t* from = values_of<kType>(values, b + g);
      const Vector inverse = Isa::broadcast(scales.inverse[g]);
      for (int span = 0; span < kVectors; span += kGroups * kGroup) {
        AGOQ_UNROLL
        for (int i = span; i < span + kGroups * kGroup; i += kGroup) {
          Codes group[kGroup];
          AGOQ_UNROLL
          for (int j = 0; j < kGroup; ++j) {
            group[j] = Element::quantize(
                Isa::template load<kType>(from + (i + j) * kVectorBytes<kType>), inverse);
          }
          Element::store(group, codes + i * kVectorCodeBytes);
        }
      }
    }
  }

  template <DataType kType>
  static void encode(const void* values, BlockRange blocks, MutableEncodedBlocks out) {
    const bool prefetch = is_long((blocks.end - blocks.first) * kBlockBytes<kType>);
    std::int64_t b = blocks.first;
    for (; b + kBlocksAtOnce <= blocks.end; b += kBlocksAtOnce) {
      encode_blocks<kType, kBlocksAtOnce>(values, b, out, prefetch);
    }
    for (; b < blocks.end; ++b) encode_blocks<kType, 1>(values, b, out, prefetch);
  }

  // --- decoding -------------------------------------------------------------------------------

  template <DataType kType, bool kStreamed>
  AGOQ_INLINE void decode_all(EncodedBlocks in, BlockRange blocks, void* values) {
    for (std::int64_t b = blocks.first; b < blocks.end; ++b) {
      const Vector scale = Isa::broadcast(load_scale(in.scales, b, in.scale_type));
      const std::uint8_t* codes = block_at(in.codes, b * kCodeBytes);
      prefetch_codes<kCodeBytes>(codes);
      std::uint8_t* to = values_of<kType>(values, b);
      for (int span = 0; span < kVectors; span += kSpan) {
        AGOQ_UNROLL
        for (int i = span; i < span + kSpan; i += kTogether) {
          typename Groups::Group x;
          Groups::decode(codes + i * kVectorCodeBytes, scale, x);
          Groups::template store<kType, kStreamed>(to + i * kVectorBytes<kType>, x);
        }
      }
    }
  }

  template <DataType kType>
  static void decode(EncodedBlocks in, BlockRange blocks, void* values) {
    decode_all<kType, false>(in, blocks, values);
  }

  template <DataType kType>
  static void decode_streamed(EncodedBlocks in, BlockRange blocks, void* values) {
    decode_all<kType, true>(in, blocks, values);
    _mm_sfence();  // what was streamed is not ordered with later stores by itself
  }

  static void accumulate(EncodedBlocks in, BlockRange blocks, float* accumulator) {
    constexpr DataType kType = DataType::kFloat32;
    const bool prefetch = is_long((blocks.end - blocks.first) * kBlockBytes<kType>);
    for (std::int64_t b = blocks.first; b < blocks.end; ++b) {
      std::uint8_t* sum = values_of<kType>(static_cast<void*>(accumulator), b);
      if (prefetch) {
        prefetch_next_run<kBlockBytes<kType>>(
            static_cast<const std::uint8_t*>(static_cast<void*>(accumulator)), b);
      }
      const Vector scale = Isa::broadcast(load_scale(in.scales, b, in.scale_type));
      const std::uint8_t* codes = block_at(in.codes, b * kCodeBytes);
      for (int span = 0; span < kVectors; span += kSpan) {
        AGOQ_UNROLL
        for (int i = span; i < span + kSpan; i += kTogether) {
          typename Groups::Group x;
          Groups::decode(codes + i * kVectorCodeBytes, scale, x);
          for (int j = 0; j < kTogether; ++j) {
            std::uint8_t* to = sum + (i + j) * kVectorBytes<kType>;
            const Vector added = Isa::add(Isa::template load<kType>(to), x[j]);
            Isa::template store<kType>(to, Isa::canonical(added));
          }
        }
      }
    }
  }

  // --- sums -----------------------------------------------------------------------------------

  template <bool kAdd>
  AGOQ_INLINE void take_codes(EncodedBlocks in, std::int64_t b, int first, Chunk& sum) {
    const float block_scale = load_scale(in.scales, b, in.scale_type);
    const Vector scale = Isa::broadcast(block_scale);
    const std::uint8_t* codes = block_at(in.codes, b * kCodeBytes);
    prefetch_codes<kCodeBytes>(codes);
    if (kAdd && is_exact(block_scale, in.scale_type)) [[likely]] {
      AGOQ_UNROLL
      for (int i = 0; i < kChunk; i += kTogether) {
        typename Groups::Group x;
        Groups::load(codes + (first + i) * kVectorCodeBytes, x);
        for (int j = 0; j < kTogether; ++j) {
          sum[i + j] = Isa::multiply_add(x[j], scale, sum[i + j]);
        }
      }
      return;
    }
    AGOQ_UNROLL
    for (int i = 0; i < kChunk; i += kTogether) {
      typename Groups::Group x;
      Groups::decode(codes + (first + i) * kVectorCodeBytes, scale, x);
      for (int j = 0; j < kTogether; ++j) sum[i + j] = kAdd ? Isa::add(sum[i + j], x[j]) : x[j];
    }
  }

  template <DataType kType, bool kAdd>
  AGOQ_INLINE void take_values(const void* values, std::int64_t b, int first, Chunk& sum) {
    const std::uint8_t* from = values_of<kType>(values, b);
    AGOQ_UNROLL
    for (int i = 0; i < kChunk; ++i) {
      const Vector x = Isa::template load<kType>(from + (first + i) * kVectorBytes<kType>);
      sum[i] = kAdd ? Isa::add(sum[i], x) : x;
    }
  }

  template <DataType kType, bool kAdd>
  AGOQ_INLINE void take_piece(const SumOfPieces& pieces, int rank, std::int64_t b, int first,
                              Chunk& sum) {
    if (rank != pieces.own_rank) {
      const auto* codes = reinterpret_cast<const std::uint8_t*>(pieces.encoded[rank]);
      take_codes<kAdd>({codes, codes + pieces.scale_offset, pieces.scale_type}, b, first, sum);
    } else if (pieces.own_type == kType) {
      take_values<kType, kAdd>(pieces.own, b, first, sum);
    } else if (pieces.own_type == DataType::kFloat32) {
      take_values<DataType::kFloat32, kAdd>(pieces.own, b, first, sum);
    } else if (pieces.own_type == DataType::kBfloat16) {
      take_values<DataType::kBfloat16, kAdd>(pieces.own, b, first, sum);
    } else {
      take_values<DataType::kFloat16, kAdd>(pieces.own, b, first, sum);
    }
  }

  /// Vectors first, first + 1, ... of block b, in rank order.
  template <DataType kType>
  AGOQ_INLINE void sum_chunk(const SumOfPieces& pieces, std::int64_t b, int first, Chunk& sum) {
    if constexpr (Element::kCompact) {
      sum_chunk_apart(pieces, b, first, sum);
    } else {
      sum_chunk_here<kType>(pieces, b, first, sum);
    }
  }

  [[gnu::noinline]] static void sum_chunk_apart(const SumOfPieces& pieces, std::int64_t b,
                                                int first, Chunk& sum) {
    sum_chunk_here<DataType::kFloat32>(pieces, b, first, sum);
  }

  template <DataType kType>
  AGOQ_INLINE void sum_chunk_here(const SumOfPieces& pieces, std::int64_t b, int first,
                                  Chunk& sum) {
    // Of the first two the owner's comes first, since a + b is b + a and codes are added faster.
    const int start = pieces.own_rank == 1 ? 1 : 0;
    take_piece<kType, false>(pieces, start, b, first, sum);
    if (pieces.ranks > 1) take_piece<kType, true>(pieces, 1 - start, b, first, sum);
    for (int rank = 2; rank < pieces.ranks; ++rank) {
      take_piece<kType, true>(pieces, rank, b, first, sum);
    }
    if (pieces.factor != 1.0f) {
      const Vector factor = Isa::broadcast(pieces.factor);
      AGOQ_UNROLL
      for (int i = 0; i < kChunk; ++i) sum[i] = Isa::mul(sum[i], factor);
    }
  }

  AGOQ_INLINE void canonicalize(Chunk& x) {
    bool has_nan = false;
    AGOQ_UNROLL
    for (int i = 0; i < kChunk; i += 2) has_nan |= Isa::has_nan(x[i], x[i + 1]);
    if (!has_nan) [[likely]]
      return;
    AGOQ_UNROLL
    for (int i = 0; i < kChunk; ++i) x[i] = Isa::canonical(x[i]);
  }

  /// Whether the owner's piece is long, and as wide as the numbers that are written.
  template <DataType kType>
  AGOQ_INLINE bool prefetches(const SumOfPieces& pieces, BlockRange blocks) {
    return pieces.own_rank >= 0 && pieces.own_type == kType &&
           is_long((blocks.end - blocks.first) * kBlockBytes<kType>);
  }

  template <DataType kType>
  static void sum_decode(const SumOfPieces& shared_pieces, BlockRange blocks, void* values) {
    const SumOfPieces pieces = shared_pieces;  // which no store can alter
    const bool prefetch = prefetches<kType>(pieces, blocks);
    for (std::int64_t b = blocks.first; b < blocks.end; ++b) {
      if (prefetch) {
        prefetch_next_run<kBlockBytes<kType>>(static_cast<const std::uint8_t*>(pieces.own), b);
      }
      std::uint8_t* to = values_of<kType>(values, b);
      for (int first = 0; first < kVectors; first += kChunk) {
        Chunk sum;
        sum_chunk<kType>(pieces, b, first, sum);
        canonicalize(sum);
        AGOQ_UNROLL
        for (int i = 0; i < kChunk; ++i) {
          Isa::template store<kType>(to + (first + i) * kVectorBytes<kType>, sum[i]);
        }
      }
    }
  }

  /// Codes of a block whose elements are `x`. Where kStore, `to` gets what they decode to: from the
  /// registers, since codes that were just stored are slow to load in other pieces.
  template <DataType kType, bool kStore>
  AGOQ_INLINE void encode_sum(const float* x, float scale, float inverse, std::uint8_t* codes,
                              std::uint8_t* to) {
    const Vector scales = Isa::broadcast(scale);
    const Vector inverses = Isa::broadcast(inverse);
    for (int span = 0; span < kVectors; span += kGroups * kGroup) {
      AGOQ_UNROLL
      for (int i = span; i < span + kGroups * kGroup; i += kGroup) {
        Codes group[kGroup];
        AGOQ_UNROLL
        for (int j = 0; j < kGroup; ++j) {
          group[j] = Element::quantize(Isa::template load<DataType::kFloat32>(x + (i + j) * kLanes),
                                       inverses);
        }
        if constexpr (kStore) {
          AGOQ_UNROLL
          for (int j = 0; j < kGroup; j += kTogether) {
            typename Groups::Group decoded;
            for (int k = 0; k < kTogether; ++k) {
              decoded[k] = Isa::mul(Element::numbers(group[j + k]), scales);
            }
            Groups::template store<kType, false>(to + (i + j) * kVectorBytes<kType>, decoded);
          }
        }
        Element::store(group, codes + i * kVectorCodeBytes);
      }
    }
  }

  template <DataType kType, int kCount>
  AGOQ_INLINE void sum_blocks(const SumOfPieces& pieces, std::int64_t b, MutableEncodedBlocks out,
                              void* values, bool prefetch) {
    alignas(64) float sums[kCount][kBlock];
    Magnitude largest[kCount];
    for (int g = 0; g < kCount; ++g) {
      if (prefetch) {
        prefetch_next_run<kBlockBytes<kType>>(static_cast<const std::uint8_t*>(pieces.own), b + g);
      }
      Magnitude ways[2] = {Isa::zero_magnitude(), Isa::zero_magnitude()};
      for (int first = 0; first < kVectors; first += kChunk) {
        Chunk sum;
        sum_chunk<kType>(pieces, b + g, first, sum);
        AGOQ_UNROLL
        for (int i = 0; i < kChunk; ++i) {
          ways[i % 2] = Isa::max_magnitude(ways[i % 2], sum[i]);
          Isa::template store<DataType::kFloat32>(sums[g] + (first + i) * kLanes, sum[i]);
        }
      }
      largest[g] = Isa::template max_of<DataType::kFloat32>(ways[0], ways[1]);
    }
    const FourScales scales = scale_blocks<Isa, DataType::kFloat32>(largest, Element::kMax, b, out);
    for (int g = 0; g < kCount; ++g) {
      // A NaN has no code.
      if (scales.zero_codes >> g & 1) [[unlikely]]
        std::fill_n(sums[g], kBlock, 0.0f);
      std::uint8_t* codes = block_at(out.codes, (b + g) * kCodeBytes);
      if (values == nullptr) {
        encode_sum<kType, false>(sums[g], scales.scale[g], scales.inverse[g], codes, nullptr);
      } else {
        encode_sum<kType, true>(sums[g], scales.scale[g], scales.inverse[g], codes,
                                values_of<kType>(values, b + g));
      }
    }
  }

  template <DataType kType>
  static void sum_encode(const SumOfPieces& shared_pieces, BlockRange blocks,
                         MutableEncodedBlocks out, void* values) {
    const SumOfPieces pieces = shared_pieces;
    const bool prefetch = prefetches<kType>(pieces, blocks);
    std::int64_t b = blocks.first;
    for (; b + kBlocksAtOnce <= blocks.end; b += kBlocksAtOnce) {
      sum_blocks<kType, kBlocksAtOnce>(pieces, b, out, values, prefetch);
    }
    for (; b < blocks.end; ++b) sum_blocks<kType, 1>(pieces, b, out, values, prefetch);
  }
};

}  // namespace agoq
