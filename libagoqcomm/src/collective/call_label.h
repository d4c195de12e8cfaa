// What the ranks must agree on in one call, as the 48 bytes that every message carries.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "agoqcomm/block_format.h"
#include "agoqcomm/transport.h"
#include "agoqcomm/types.h"

namespace agoq {

/// Value type; layout of the bytes in call_label.cc.
struct CallLabel {
  std::uint64_t call = 0;  ///< Number of the call in its group.
  Operation operation = Operation::kBarrier;
  DataType type = DataType::kOther;
  ReduceOp reduce_op = ReduceOp::kNone;
  bool quantized = false;
  bool two_level = false;
  std::int64_t count = 0;  ///< Of the whole call, not of a chunk.
  std::int32_t root = 0;
  float factor = 1.0f;
  BlockFormat format;
  std::int64_t segment_numel = 0;
  std::uint64_t counts_digest =
      0;  ///< Of the chunks' counts, where they are given, and of two levels.

  Label pack() const;
  static CallLabel unpack(const Label& label);

  /// "all_reduce (sum) of 4096 fp32 elements, call 7"
  std::string describe() const;
};

/// 64-bit FNV-1a of the counts.
std::uint64_t digest(std::span<const std::int64_t> counts);

/// A sentence that names the first field that differs and both ranks' values: "rank 1 called
/// all_reduce with 4100 elements of fp32, rank 0 with 4096". `own` and `theirs` differ.
std::string describe_difference(int own_rank, const CallLabel& own, int peer,
                                const CallLabel& theirs);

}  // namespace agoq
