// Why a call is exact: the decision, and the names of its reasons.
#include <array>

#include "agoqcomm/options.h"

namespace agoq {
namespace {

constexpr std::array<std::string_view, kExactReasonCount> kNames = {
    "quantized", "one rank", "operation", "not selected", "data type",
    "reduce op", "small",    "device",    "layout",
};

bool is_sum(ReduceOp op) {
  return op == ReduceOp::kSum || op == ReduceOp::kAvg || op == ReduceOp::kPremulSum;
}

bool is_ever_quantized(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduceScatter ||
         operation == Operation::kAllGather;
}

}  // namespace

std::string_view to_string(ExactReason reason) noexcept {
  const auto index = static_cast<std::size_t>(reason);
  return index < kNames.size() ? kNames[index] : "unknown";
}

ExactReason why_exact(Operation operation, DataType type, ReduceOp op, std::int64_t count, int size,
                      const Options& options) noexcept {
  if (!is_ever_quantized(operation)) return ExactReason::kOperation;
  if (size == 1) return ExactReason::kOneRank;
  if (!options.quantizes(operation)) return ExactReason::kNotSelected;
  if (!is_encodable(type)) return ExactReason::kDataType;
  if (operation != Operation::kAllGather && !is_sum(op)) return ExactReason::kReduceOp;
  // A call of no elements has nothing to encode, whatever min_numel is.
  if (count < options.min_numel || count == 0) return ExactReason::kSmall;
  return ExactReason::kNone;
}

}  // namespace agoq
