// The codec: numbers to encoded bytes and back, on the CPU. All kernels are bit-for-bit the same
// function whatever the ISA; docs/numerics.md states it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "agoqcomm/block_format.h"
#include "agoqcomm/export.h"
#include "agoqcomm/types.h"
#include "agoqcomm/wire_layout.h"

namespace agoq {

class CodecThreads;
struct KernelTable;

/// Instruction sets with kernels of their own, worst first.
enum class CpuIsa : std::uint8_t { kScalar = 0, kAvx2 = 1, kAvx512 = 2 };

AGOQ_API std::string_view to_string(CpuIsa isa) noexcept;
AGOQ_API bool is_supported(CpuIsa isa) noexcept;
/// The best this machine runs, or what AGOQ_CPU_ISA (scalar, avx2, avx512) asks for. Throws
/// Error(kInvalidArgument) for an unknown name, Error(kUnsupported) for one this CPU lacks.
AGOQ_API CpuIsa selected_cpu_isa();

/// How a code is chosen between its two neighbours.
struct Rounding {
  /// false: round half to even. true: up with a probability equal to the distance, by Philox4x32-10
  /// counters keyed by all the fields below, so that a call can be repeated bit for bit.
  bool stochastic = false;
  std::uint64_t seed = 0;
  std::uint32_t call = 0;
  std::uint32_t rank = 0;
  /// Which encoding of the call this is: 0 for a rank's pieces, 1 for the reduced chunk.
  std::uint32_t stage = 0;
  /// Index in the call's whole buffer of the first element given to encode().
  std::int64_t first_element = 0;
};

/// Whether decoded numbers are left in the caches or stored past them, which is faster where they
/// would not stay there anyway. Unaligned buffers (64 bytes) are always written through the caches.
enum class CacheUse : std::uint8_t {
  kAutomatic,  ///< Past them from 16 MiB up.
  kCached,
  kStreamed,
};

/// The pieces that sum to one segment of a chunk: one from each rank, in rank order.
struct Pieces {
  /// Encoded bytes of each rank's piece; the entry of `own_rank` is ignored.
  std::span<const std::byte* const> encoded;
  /// The owner's piece, not encoded, or null (with own_rank -1) when all of them are encoded.
  const void* own = nullptr;
  DataType own_type = DataType::kFloat32;
  int own_rank = -1;
};

/// Thread-safe: immutable after construction; any number of threads may use one object.
///
/// Buffers may have any alignment unless a function says otherwise. `count` is in elements. Element
/// buffers are fp32, bf16 or fp16. Encoded buffers hold WireLayout(format, count).total_bytes()
/// bytes and must be aligned to 4. What is written must not overlap what is read unless a function
/// says so. Arguments are checked (overlaps: those of sum_encode's `encoded`); a violation throws
/// Error(kInvalidArgument).
class AGOQ_API Codec {
 public:
  explicit Codec(const BlockFormat& format);
  /// Long calls are shared between `threads` threads, the caller's among them; the bytes are the
  /// same. The other threads are started by the first long call and live as long as the codec and
  /// its copies. Throws Error(kInvalidArgument) unless there are 1 to kMaxThreads.
  Codec(const BlockFormat& format, CpuIsa isa, int threads = 1);
  static constexpr int kMaxThreads = 256;

  const BlockFormat& format() const { return format_; }
  CpuIsa isa() const { return isa_; }
  int threads() const;

  void encode(const void* values, DataType type, std::int64_t count, std::byte* encoded,
              const Rounding& rounding = {}) const;
  void decode(const std::byte* encoded, std::int64_t count, void* values, DataType type,
              CacheUse use = CacheUse::kAutomatic) const;
  /// accumulator[i] += decoded[i], in fp32.
  void decode_accumulate(const std::byte* encoded, std::int64_t count, float* accumulator) const;
  /// fp32 sum of the pieces in rank order, times `factor` (skipped when it is 1), rounded once to
  /// `type`. `values` may be the memory of pieces.own.
  void sum_decode(const Pieces& pieces, std::int64_t count, float factor, void* values,
                  DataType type) const;
  /// The same sum, encoded; `encoded` may be all the memory of a piece. `values`, where given,
  /// receives what every other rank will decode, in `type`; it may be the memory of pieces.own.
  void sum_encode(const Pieces& pieces, std::int64_t count, float factor, std::byte* encoded,
                  void* values, DataType type, const Rounding& rounding = {}) const;

 private:
  friend class RowCodec;  // The same kernels and threads, for rows.

  /// The threads that may share a sum, or null.
  CodecThreads* threads_of(const Pieces& pieces, const void* values, DataType type) const;

  BlockFormat format_;
  CpuIsa isa_;
  const KernelTable* kernels_;
  std::shared_ptr<CodecThreads> threads_;  // Null where the caller works alone.
};

}  // namespace agoq
