// The codes of eight elements: as many bytes as a code has bits, whatever the format.
#pragma once

#include <cstdint>
#include <type_traits>

#include "codec/cuda/arguments.h"
#include "codec/cuda/element_vector.cuh"
#include "format/scale.h"

namespace agoq::cuda {

/// In registers. Read and written by Format::get and Format::put.
template <class Format>
struct alignas(8) CodeVector {
  static_assert(Format::kBits <= 8, "a vector's codes must fit 64 bits");
  std::uint8_t byte[8] = {};
};

/// Bytes that the codes of `live` elements take.
template <class Format>
__device__ __forceinline__ int code_bytes(int live) {
  return (live * Format::kBits + 7) / 8;
}

template <class Chunk, int kBytes>
__device__ __forceinline__ void copy_chunks(std::uint8_t* to, const std::uint8_t* from) {
#pragma unroll
  for (int i = 0; i < kBytes; i += static_cast<int>(sizeof(Chunk))) {
    *reinterpret_cast<Chunk*>(to + i) = *reinterpret_cast<const Chunk*>(from + i);
  }
}

/// The widest accesses to a vector's codes in a buffer that is aligned to 4.
template <int kBytes>
__device__ __forceinline__ void copy_codes(std::uint8_t* to, const std::uint8_t* from,
                                           bool is_aligned_to_8) {
  using Chunk =
      std::conditional_t<kBytes % 4 == 0, std::uint32_t,
                         std::conditional_t<kBytes % 2 == 0, std::uint16_t, std::uint8_t>>;
  if constexpr (kBytes == 8) {
    if (is_aligned_to_8) return copy_chunks<std::uint64_t, kBytes>(to, from);
  }
  copy_chunks<Chunk, kBytes>(to, from);
}

/// Codes past `live` become 0.
template <class Format>
__device__ __forceinline__ CodeVector<Format> load_codes(const std::uint8_t* encoded,
                                                         std::int64_t vector, int live) {
  CodeVector<Format> codes;
  const std::uint8_t* from = encoded + vector * Format::kBits;
  if (live == kVector) {
    copy_codes<Format::kBits>(codes.byte, from, is_aligned(from, 8));
    return codes;
  }
  std::uint64_t word = 0;
#pragma unroll 1
  for (int i = 0; i < code_bytes<Format>(live); ++i) {
    word |= static_cast<std::uint64_t>(from[i]) << (8 * i);
  }
  __builtin_memcpy(codes.byte, &word, 8);
  return codes;
}

template <class Format>
__device__ __forceinline__ void store_codes(const CodeVector<Format>& codes, std::uint8_t* encoded,
                                            std::int64_t vector, int live) {
  std::uint8_t* to = encoded + vector * Format::kBits;
  if (live == kVector) {
    copy_codes<Format::kBits>(to, codes.byte, is_aligned(to, 8));
    return;
  }
  std::uint64_t word;
  __builtin_memcpy(&word, codes.byte, 8);
#pragma unroll 1
  for (int i = 0; i < code_bytes<Format>(live); ++i) {
    to[i] = static_cast<std::uint8_t>(word >> (8 * i));
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

/// Scales are aligned to their size, which the byte-wise load_scale() does not know.
__device__ __forceinline__ float load_scale_of(const std::uint8_t* encoded,
                                               std::int64_t scale_offset, std::int64_t vector,
                                               const BlockShape& shape) {
  const std::uint8_t* scales = encoded + scale_offset;
  const std::int64_t block = vector >> shape.shift;
  const std::uint32_t raw =
      shape.scale_type == ScaleType::kBfloat16
          ? static_cast<std::uint32_t>(reinterpret_cast<const std::uint16_t*>(scales)[block]) << 16
          : reinterpret_cast<const std::uint32_t*>(scales)[block];
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

/// Not canonical yet: store_values() makes it so.
template <class Format>
__device__ __forceinline__ void decode_vector(const CodeVector<Format>& codes, float scale,
                                              float (&x)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] = Format::dequantize(Format::get(codes.byte, i), scale);
}

}  // namespace agoq::cuda
