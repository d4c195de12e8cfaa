// Random calls of a soak: drawn alike on every rank, and the results by the contract's words alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "agoqcomm/codec.h"
#include "agoqcomm/options.h"
#include "codec/values.h"
#include "codec_inputs.h"
#include "contract_oracle.h"
#include "plain_reduce.h"

namespace agoq::testing {

/// One call, the same on all ranks.
struct SoakCall {
  Operation operation{};
  DataType type{};
  ReduceOp op{};
  Family family{};
  int root = 0;
  bool in_place = false;
  float factor = 1.0f;
  std::vector<std::int64_t> counts;  ///< Of each rank's chunk; one entry where all have the same.
  unsigned seed = 0;

  std::int64_t total() const {
    std::int64_t sum = 0;
    for (const std::int64_t count : counts) sum += count;
    return sum;
  }
  std::int64_t offset(int rank) const {
    std::int64_t sum = 0;
    for (int before = 0; before < rank; ++before) sum += counts[before];
    return sum;
  }
  /// Of a send, whose sender is the root.
  int receiver(int size) const { return (root + 1) % size; }
  std::string describe() const {
    return std::string(to_string(operation)) + " of " + std::to_string(total()) + " " +
           std::string(to_string(type)) + ", " + std::string(to_string(op)) + ", root " +
           std::to_string(root) + (in_place ? ", in place" : "") + ", family " +
           std::to_string(static_cast<int>(family));
  }
};

inline std::int64_t random_count(std::mt19937_64& random) {
  const std::uint64_t log = random() % 64 == 0 ? 18 : random() % 15;
  return static_cast<std::int64_t>(random() % (std::uint64_t{1} << log));
}

inline SoakCall random_call(std::mt19937_64& random, int size) {
  constexpr std::array kOperations = {
      Operation::kAllReduce,     Operation::kAllReduce, Operation::kAllReduce,
      Operation::kReduceScatter, Operation::kAllGather, Operation::kBroadcast,
      Operation::kReduce,        Operation::kGather,    Operation::kScatter,
      Operation::kAllToAll,      Operation::kBarrier,   Operation::kSend};
  constexpr std::array kSoakTypes = {DataType::kFloat32,  DataType::kFloat32, DataType::kBfloat16,
                                     DataType::kBfloat16, DataType::kFloat16, DataType::kFloat64,
                                     DataType::kInt32,    DataType::kUint8};
  constexpr std::array kSums = {ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax,
                                ReduceOp::kPremulSum};
  SoakCall call;
  call.operation = kOperations[random() % kOperations.size()];
  call.type = kSoakTypes[random() % kSoakTypes.size()];
  call.op = kSums[random() % kSums.size()];
  const bool is_integer = call.type == DataType::kInt32 || call.type == DataType::kUint8;
  if (is_integer && call.op == ReduceOp::kPremulSum) call.op = ReduceOp::kMin;
  if (call.op == ReduceOp::kPremulSum) call.factor = 0.37f;
  call.family = kFamilies[random() % std::size(kFamilies)];
  call.root = static_cast<int>(random() % static_cast<std::uint64_t>(size));
  call.in_place = random() % 2 == 0;
  const bool equal = random() % 2 == 0;
  const std::int64_t count = random_count(random);
  for (int rank = 0; rank < size; ++rank) {
    call.counts.push_back(equal ? count : random_count(random) / size);
  }
  call.seed = static_cast<unsigned>(random());
  return call;
}

/// A rank's elements: of all chunks, one after another.
inline Bytes soak_input(const SoakCall& call, int rank) {
  const unsigned seed = call.seed + static_cast<unsigned>(rank);
  if (call.type == DataType::kFloat32 || call.type == DataType::kBfloat16 ||
      call.type == DataType::kFloat16) {
    return make_input(call.family, call.type, call.total(), seed);
  }
  // Bytes below 64 are small numbers in every type: no NaN, and nothing overflows.
  std::mt19937 random(seed);
  Bytes bytes(static_cast<std::size_t>(call.total()) * size_of(call.type));
  for (std::byte& byte : bytes) byte = std::byte(random() % 64);
  return bytes;
}

/// What rank `rank` ends up with. `number` counts the calls of the whole group from 0.
class SoakReference {
 public:
  SoakReference(const Options& options, const SoakCall& call, int size, std::uint64_t number)
      : options_(options), codec_(options.format, CpuIsa::kScalar), call_(call), size_(size) {
    rounding_.stochastic = options.stochastic_rounding;
    rounding_.seed = options.seed;
    rounding_.call = static_cast<std::uint32_t>(number);
    for (int rank = 0; rank < size; ++rank) inputs_.push_back(soak_input(call, rank));
  }

  const Bytes& input(int rank) const { return inputs_[rank]; }

  Bytes result(int rank) const {
    const std::int64_t own = call_.counts[rank];
    const std::int64_t offset = call_.offset(rank);
    switch (call_.operation) {
      case Operation::kAllReduce:
        return is_quantized() ? quantized_all_reduce() : exact_sum(0, call_.total());
      case Operation::kReduceScatter:
        if (!is_quantized()) return exact_sum(offset, own);
        return to_type(quantized_sum(rank, offset, own), call_.type);
      case Operation::kReduce:
        return rank == call_.root ? exact_sum(0, call_.total()) : Bytes();
      case Operation::kAllGather: {
        Bytes all;
        for (int from = 0; from < size_; ++from) append(all, gathered(from));
        return all;
      }
      case Operation::kGather: {
        Bytes all;
        for (int from = 0; from < size_ && rank == call_.root; ++from) {
          append(all, piece(from, call_.offset(from), call_.counts[from]));
        }
        return all;
      }
      case Operation::kBroadcast:
        return inputs_[call_.root];
      case Operation::kSend:
        return rank == call_.receiver(size_) ? inputs_[call_.root] : Bytes();
      case Operation::kScatter:
        return piece(call_.root, offset, own);
      case Operation::kAllToAll: {
        Bytes all;
        for (int from = 0; from < size_; ++from) append(all, piece(from, offset, own));
        return all;
      }
      default:
        return {};
    }
  }

 private:
  bool is_quantized() const {
    return why_exact(call_.operation, call_.type, call_.op, call_.total(), size_, options_) ==
           ExactReason::kNone;
  }

  Bytes piece(int rank, std::int64_t offset, std::int64_t count) const {
    return slice(inputs_[rank], call_.type, offset, count);
  }

  static void append(Bytes& all, const Bytes& more) {
    all.insert(all.end(), more.begin(), more.end());
  }

  Rounding rounding(int rank, std::uint32_t stage, std::int64_t first) const {
    Rounding rounding = rounding_;
    rounding.rank = static_cast<std::uint32_t>(rank);
    rounding.stage = stage;
    rounding.first_element = first;
    return rounding;
  }

  Bytes exact_sum(std::int64_t offset, std::int64_t count) const {
    std::vector<Bytes> pieces;
    for (int rank = 0; rank < size_; ++rank) pieces.push_back(piece(rank, offset, count));
    return plain_reduce(pieces, call_.type, call_.op, call_.factor);
  }

  Bytes gathered(int from) const {
    const std::int64_t offset = call_.offset(from);
    const Bytes values = piece(from, offset, call_.counts[from]);
    if (!is_quantized()) return values;
    const Bytes encoded = encode(codec_, values, call_.type, rounding(from, 0, offset));
    return to_type(decode(codec_, encoded, call_.counts[from]), call_.type);
  }

  /// The owner's scaled fp32 sum: its own piece as it is, the others' encoded.
  std::vector<float> quantized_sum(int owner, std::int64_t offset, std::int64_t count) const {
    std::vector<float> sum(count);
    for (int rank = 0; rank < size_; ++rank) {
      const Bytes values = piece(rank, offset, count);
      const std::vector<float> decoded =
          rank == owner
              ? to_floats(values, call_.type)
              : decode(codec_, encode(codec_, values, call_.type, rounding(rank, 0, offset)),
                       count);
      for (std::int64_t i = 0; i < count; ++i) {
        sum[i] = rank == 0 ? decoded[i] : sum[i] + decoded[i];
      }
    }
    const float factor = factor_of(call_.op, size_, call_.factor);
    for (float& value : sum) value = factor == 1.0f ? value : value * factor;
    return sum;
  }

  Bytes quantized_all_reduce() const {
    Bytes all;
    std::int64_t offset = 0;
    int owner = 0;
    for (const std::int64_t count : balanced_counts(call_.total(), size_, options_.format.block)) {
      const Bytes sum = to_bytes(quantized_sum(owner, offset, count));
      const Bytes encoded = encode(codec_, sum, DataType::kFloat32, rounding(owner, 1, offset));
      append(all, to_type(decode(codec_, encoded, count), call_.type));
      offset += count;
      ++owner;
    }
    return all;
  }

  const Options& options_;
  const Codec codec_;
  const SoakCall& call_;
  const int size_;
  Rounding rounding_;
  std::vector<Bytes> inputs_;
};

/// Equal, where any NaN equals any other: which of two NaNs a sum keeps is the machine's affair.
inline bool same_values(const Bytes& a, const Bytes& b, DataType type) {
  if (a == b) return true;
  if (a.size() != b.size() || type == DataType::kFloat64 || type == DataType::kInt32 ||
      type == DataType::kUint8) {
    return false;
  }
  const auto count = static_cast<std::int64_t>(a.size() / size_of(type));
  for (std::int64_t i = 0; i < count; ++i) {
    const bool nan =
        std::isnan(load_value(type, a.data(), i)) && std::isnan(load_value(type, b.data(), i));
    if (!nan && slice(a, type, i, 1) != slice(b, type, i, 1)) return false;
  }
  return true;
}

}  // namespace agoq::testing
