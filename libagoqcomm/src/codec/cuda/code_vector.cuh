// The codes of eight elements: as many bytes as a code has bits, whatever the format.
#pragma once

#include <cstdint>
#include <type_traits>

#include "codec/cuda/arguments.h"
#include "codec/cuda/element_vector.cuh"
#include "format/scale.h"

namespace agoq::cuda {

/// In registers, as in memory: the first code in the lowest bits.
template <class Format>
struct CodeVector {
  static_assert(Format::kBits <= 8, "a vector's codes must fit 64 bits");
  std::uint32_t word[2] = {};
};

/// Code `i` in the highest bits of a word, with bits of its neighbours below them. `i` must be
/// known when this is compiled, as in an unrolled loop.
template <int kBits>
__device__ __forceinline__ std::uint32_t code_at_top(const std::uint32_t (&word)[2], int i) {
  const int end = (i + 1) * kBits;
  if (end <= 32) return word[0] << (32 - end);
  const std::uint32_t high = word[1] << (64 - end);
  return end - kBits >= 32 ? high : high | word[0] >> (end - 32);
}

/// The first four codes and the last four, each from the lowest bit of a word on.
template <class Format>
__device__ __forceinline__ CodeVector<Format> join_fours(std::uint32_t first, std::uint32_t last) {
  constexpr int kFour = 4 * Format::kBits;
  if constexpr (kFour == 32) {
    return {{first, last}};
  } else {
    return {{first | last << kFour, last >> (32 - kFour)}};
  }
}

/// Bytes that the codes of `live` elements take.
template <class Format>
__device__ __forceinline__ int code_bytes(int live) {
  return (live * Format::kBits + 7) / 8;
}

/// The widest type by which a vector's codes can be accessed in a buffer that is aligned to 4.
template <class Format>
using CodeChunk =
    std::conditional_t<Format::kBits % 4 == 0, std::uint32_t,
                       std::conditional_t<Format::kBits % 2 == 0, std::uint16_t, std::uint8_t>>;

/// Whether a whole vector's codes can be accessed by chunks. Buffers are aligned to 4, but a row of
/// one may begin at any byte: kAnywhere says that `codes` lies in such a row.
template <class Format, bool kAnywhere>
__device__ __forceinline__ bool is_chunked(const std::uint8_t* codes, int live) {
  if (kAnywhere && !is_aligned(codes, sizeof(CodeChunk<Format>))) return false;
  return live == kVector;
}

/// Codes past `live` have no meaning.
template <class Format, bool kAnywhere = false>
__device__ __forceinline__ CodeVector<Format> load_codes(const std::uint8_t* encoded,
                                                         std::int64_t vector, int live) {
  using Chunk = CodeChunk<Format>;
  CodeVector<Format> codes;
  const std::uint8_t* from = encoded + vector * Format::kBits;
  if (is_chunked<Format, kAnywhere>(from, live)) {
    if (Format::kBits == 8 && is_aligned(from, 8)) {
      const uint2 both = *reinterpret_cast<const uint2*>(from);
      codes.word[0] = both.x;
      codes.word[1] = both.y;
      return codes;
    }
#pragma unroll
    for (int i = 0; i < Format::kBits; i += static_cast<int>(sizeof(Chunk))) {
      const std::uint32_t chunk = *reinterpret_cast<const Chunk*>(from + i);
      codes.word[i / 4] |= chunk << (8 * (i % 4));
    }
    return codes;
  }
  std::uint64_t both = 0;
#pragma unroll 1
  for (int i = 0; i < code_bytes<Format>(live); ++i) {
    both |= static_cast<std::uint64_t>(from[i]) << (8 * i);
  }
  codes.word[0] = static_cast<std::uint32_t>(both);
  codes.word[1] = static_cast<std::uint32_t>(both >> 32);
  return codes;
}

/// Codes past `live` must be 0.
template <class Format, bool kAnywhere = false>
__device__ __forceinline__ void store_codes(const CodeVector<Format>& codes, std::uint8_t* encoded,
                                            std::int64_t vector, int live) {
  using Chunk = CodeChunk<Format>;
  std::uint8_t* to = encoded + vector * Format::kBits;
  if (is_chunked<Format, kAnywhere>(to, live)) {
    if (Format::kBits == 8 && is_aligned(to, 8)) {
      *reinterpret_cast<uint2*>(to) = make_uint2(codes.word[0], codes.word[1]);
      return;
    }
#pragma unroll
    for (int i = 0; i < Format::kBits; i += static_cast<int>(sizeof(Chunk))) {
      *reinterpret_cast<Chunk*>(to + i) = static_cast<Chunk>(codes.word[i / 4] >> (8 * (i % 4)));
    }
    return;
  }
  const std::uint64_t both = codes.word[0] | static_cast<std::uint64_t>(codes.word[1]) << 32;
#pragma unroll 1
  for (int i = 0; i < code_bytes<Format>(live); ++i) {
    to[i] = static_cast<std::uint8_t>(both >> (8 * i));
  }
}

/// Writes the zero bytes that align the scales: for the thread whose vector is the last.
template <class Format>
__device__ __forceinline__ void store_padding(std::uint8_t* encoded, std::int64_t vector, int live,
                                              std::int64_t scale_offset) {
  // Whole vectors of such formats leave nothing to align.
  if (Format::kBits % 4 == 0 && live == kVector) return;
  for (std::int64_t at = vector * Format::kBits + code_bytes<Format>(live); at < scale_offset;
       ++at) {
    encoded[at] = 0;
  }
}

/// From the beginning of encoded bytes to the scale of a vector.
__device__ __forceinline__ std::int64_t scale_offset_of(std::int64_t scale_offset,
                                                        std::int64_t vector,
                                                        const BlockShape& shape) {
  const int size_shift = shape.scale_type == ScaleType::kBfloat16 ? 1 : 2;
  return scale_offset + ((vector >> shape.shift) << size_shift);
}

/// Scales are aligned to their size, which the byte-wise load_scale() does not know.
__device__ __forceinline__ float load_scale_at(const std::uint8_t* scale, ScaleType type) {
  const std::uint32_t raw =
      type == ScaleType::kBfloat16
          ? static_cast<std::uint32_t>(*reinterpret_cast<const std::uint16_t*>(scale)) << 16
          : *reinterpret_cast<const std::uint32_t*>(scale);
  return canonical_scale(from_bits(raw));
}

__device__ __forceinline__ void store_scale_of(std::uint8_t* encoded, std::int64_t scale_offset,
                                               std::int64_t vector, const BlockShape& shape,
                                               float scale) {
  std::uint8_t* scales = encoded + scale_offset;
  const std::int64_t block = vector >> shape.shift;
  if (shape.scale_type == ScaleType::kBfloat16) {
    reinterpret_cast<std::uint16_t*>(scales)[block] = static_cast<std::uint16_t>(bits(scale) >> 16);
  } else {
    reinterpret_cast<std::uint32_t*>(scales)[block] = bits(scale);
  }
}

}  // namespace agoq::cuda
