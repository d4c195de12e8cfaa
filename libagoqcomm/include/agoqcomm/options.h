// What a user may choose about a group. Equal on all ranks: fingerprint() is compared at start-up.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agoqcomm/block_format.h"
#include "agoqcomm/export.h"
#include "agoqcomm/types.h"

namespace agoq {

/// How the bytes of an all-reduce, reduce-scatter, all-gather, broadcast or reduce find their way.
enum class Algorithm : std::uint8_t {
  kAuto = 0,      ///< Two levels where the topology has them and the call is not small.
  kFlat = 1,      ///< Every piece goes straight to its owner.
  kTwoLevel = 2,  ///< First within each node, then between nodes, wherever the topology has both.
};
AGOQ_API std::string_view to_string(Algorithm algorithm) noexcept;

/// Value type; copy freely.
struct AGOQ_API Options {
  BlockFormat format;
  /// Unbiased rounding by Philox counters instead of round-half-even.
  bool stochastic_rounding = false;
  std::uint64_t seed = 0;
  /// Calls with fewer elements than this travel exactly: there the encoding costs more than it
  /// saves.
  std::int64_t min_numel = 16384;
  /// Which collectives are quantized. All-gather carries parameters as a rule, so it is opt-in.
  bool quantize_all_reduce = true;
  bool quantize_reduce_scatter = true;
  bool quantize_all_gather = false;
  /// Results depend on it: two levels add in another order and encode once more.
  Algorithm algorithm = Algorithm::kAuto;
  /// Elements of a segment, the unit of pipelining, rounded up to whole blocks; bytes of an exact
  /// one. No result depends on it. The default keeps a message and its header under 64 KiB, which
  /// is the most that Linux hands to a link at once: where a message just exceeds it, its tail
  /// travels alone, and sockets lose up to a third.
  std::int64_t segment_numel = 61440;
  /// Threads that encode, sum and decode a call together, the caller's among them. 0: this rank's
  /// share of the node's cores, 4 at most. Ranks may differ, and no result depends on it.
  int codec_threads = 0;
  /// For a call that states none of its own.
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};

  /// Throws Error(kInvalidArgument) that names the field and what it may be.
  void validate() const;
  bool quantizes(Operation operation) const noexcept;
};

/// One field of a fingerprint.
struct FingerprintField {
  std::string name;
  std::string value;
};

/// Version and the options that must agree between ranks, in a fixed order.
AGOQ_API std::vector<FingerprintField> fingerprint(const Options& options);
/// "" where equal, else a sentence that names the differing field and both values.
AGOQ_API std::string compare_fingerprints(int rank_a, const std::vector<FingerprintField>& a,
                                          int rank_b, const std::vector<FingerprintField>& b);

/// Why a call was exact. One row here, one in exact_reason.cc; stats count by it.
enum class ExactReason : std::uint8_t {
  kNone = 0,     ///< It was quantized.
  kOneRank,      ///< A group of one rank copies.
  kOperation,    ///< This collective is never quantized (broadcast, barrier, ...).
  kNotSelected,  ///< The options do not quantize this collective.
  kDataType,     ///< Only fp32, bf16 and fp16 are quantized.
  kReduceOp,     ///< Only SUM, AVG and PREMUL_SUM are quantized.
  kSmall,        ///< Fewer elements than min_numel.
  kDevice,       ///< No kernels for the tensor's device in this build.
  kLayout,       ///< Sparse or otherwise not dense.
};
inline constexpr int kExactReasonCount = 9;
AGOQ_API std::string_view to_string(ExactReason reason) noexcept;

/// The decision, from what every rank sees alike. `count` is what the whole group sees: the input
/// of an all-reduce or reduce-scatter, the output of an all-gather.
AGOQ_API ExactReason why_exact(Operation operation, DataType type, ReduceOp op, std::int64_t count,
                               int size, const Options& options) noexcept;

}  // namespace agoq
