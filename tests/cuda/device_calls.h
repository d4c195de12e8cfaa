// Collective calls as data, run by the host's Communicator and by DeviceCommunicators over any
// device: the two must agree byte for byte. Knows no test framework.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agoqcomm/communicator.h"
#include "agoqcomm/inproc.h"
#include "agoqcomm/row_codec.h"
#include "agoqcomm/types.h"
#include "codec_inputs.h"

namespace agoq::testing {

/// What a call of rows does besides. Not all of it is for every operation.
struct RowParts {
  std::int64_t width = 0;  ///< Elements of a row; 0 where the call has no rows.
  bool residual = false;
  bool norm = false;  ///< With a weight.
  bool normed = false;
  bool encoded = false;            ///< The finished rows, from row 3 of a longer buffer on.
  bool sends_encoded = false;      ///< Of a gather: what is sent is encoded already.
  bool draws = true;               ///< Whether that encoding is rounded at random.
  std::optional<bool> quantize{};  ///< As CallOptions::quantize.

  std::string name() const {
    if (width == 0) return "";
    return "/rows of " + std::to_string(width) + (residual ? "+residual" : "") +
           (norm ? "+norm" : "") + (normed ? "+normed" : "") + (encoded ? "+encoded" : "") +
           (sends_encoded ? "/sends encoded" : "");
  }
};

struct CollectiveCall {
  Operation operation = Operation::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  /// Elements, or rows: an all-reduce has one count, the others one a rank.
  std::vector<std::int64_t> counts;
  bool in_place = false;
  float factor = 1.0f;
  Family family = Family::kNormal;
  RowParts rows{};

  std::int64_t elements(std::size_t chunk) const {
    return counts[chunk] * std::max<std::int64_t>(rows.width, 1);
  }

  std::string name() const {
    std::string text = std::string(to_string(operation)) + "/" + std::string(to_string(type)) +
                       "/" + std::string(to_string(op)) + (in_place ? "/in place" : "") +
                       rows.name();
    for (const std::int64_t count : counts) text.append("/").append(std::to_string(count));
    return text;
  }
};

/// Memory of the host, and of devices that are simulated on it. What a Memory is: it stays where it
/// is, read() and write() wait for the device.
class HostMemory {
 public:
  explicit HostMemory(Bytes contents) : contents_(std::move(contents)) {}
  void* data() { return contents_.data(); }
  Bytes read() const { return contents_; }
  void write(const Bytes& contents) {
    std::copy(contents.begin(), contents.end(), contents_.begin());
  }

 private:
  Bytes contents_;
};

/// One rank's buffers of a call. Encoded rows are in the default format.
template <typename Memory>
class CallBuffersIn {
 public:
  CallBuffersIn(const CollectiveCall& call, int rank, unsigned seed) : call_(call), rank_(rank) {
    for (const Bytes& input : inputs(seed)) in_.push_back(std::make_unique<Memory>(input));
    const auto own = static_cast<std::size_t>(rank);
    for (std::size_t chunk = 0; chunk < call.counts.size(); ++chunk) {
      if (scatters() && chunk != own) continue;
      out_.push_back(filled(static_cast<std::size_t>(call.elements(chunk)) * size_of(call.type)));
    }
    if (call.in_place) {
      if (gathers()) {
        out_[own] = in_[0];
      } else {
        out_[0] = in_[scatters() ? own : 0];
      }
    }
    for (const auto& memory : in_) ins_.push_back(memory->data());
    for (const auto& memory : out_) outs_.push_back(memory->data());
    if (has_rows()) make_epilogue(seed);
  }

  /// `more` is CallOptions or DeviceCall.
  template <typename Communicator, typename More>
  void issue(Communicator& communicator, More more) {
    if (has_rows()) return issue_rows(communicator, more);
    if (scatters()) {
      communicator.reduce_scatter(ins_, call_.counts, outs_[0], call_.type, call_.op, more);
    } else if (gathers()) {
      communicator.all_gather(ins_[0], outs_, call_.counts, call_.type, more);
    } else {
      communicator.all_reduce(ins_[0], outs_[0], call_.counts[0], call_.type, call_.op, more);
    }
  }

  template <typename DeviceCommunicator>
  std::size_t workspace(const DeviceCommunicator& communicator) const {
    const RowParts& rows = call_.rows;
    if (has_rows() && scatters()) {
      return communicator.reduce_scatter_rows_workspace(call_.counts, rows.width, call_.type,
                                                        call_.op, rows.quantize);
    }
    if (rows.sends_encoded) {
      return communicator.all_gather_encoded_rows_workspace(call_.counts, rows.width);
    }
    if (has_rows()) {
      return communicator.all_gather_rows_workspace(call_.counts, rows.width, call_.type,
                                                    rows.quantize);
    }
    if (scatters()) {
      return communicator.reduce_scatter_workspace(call_.counts, call_.type, call_.op);
    }
    if (gathers()) return communicator.all_gather_workspace(call_.counts, call_.type);
    return communicator.all_reduce_workspace(call_.counts[0], call_.type, call_.op);
  }

  /// What the call gave this rank.
  Bytes result() const {
    Bytes bytes;
    std::vector<std::shared_ptr<Memory>> all = out_;
    if (normed_) all.push_back(normed_);
    if (encoded_) all.push_back(encoded_);
    for (const auto& memory : all) {
      const Bytes part = memory->read();
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    return bytes;
  }

  /// Gives the inputs, where they are, the contents that another seed's have.
  void refill(unsigned seed) {
    const std::vector<Bytes> contents = inputs(seed);
    for (std::size_t i = 0; i < in_.size(); ++i) in_[i]->write(contents[i]);
    if (residual_) residual_->write(residual(seed));
  }

 private:
  bool scatters() const { return call_.operation == Operation::kReduceScatter; }
  bool gathers() const { return call_.operation == Operation::kAllGather; }
  bool has_rows() const { return call_.rows.width > 0; }
  std::size_t own() const { return static_cast<std::size_t>(rank_); }

  static std::shared_ptr<Memory> filled(std::size_t bytes) {
    return std::make_shared<Memory>(Bytes(bytes, std::byte{0x5A}));
  }

  template <typename Communicator, typename More>
  void issue_rows(Communicator& communicator, More& more) {
    more.quantize = call_.rows.quantize;
    const std::int64_t width = call_.rows.width;
    if (scatters()) {
      communicator.reduce_scatter_rows(ins_, call_.counts, width, outs_[0], call_.type, call_.op,
                                       epilogue_, more);
    } else if (call_.rows.sends_encoded) {
      communicator.all_gather_encoded_rows(static_cast<const std::byte*>(ins_[0]), outs_,
                                           call_.counts, width, call_.type, more);
    } else {
      communicator.all_gather_rows(ins_[0], outs_, call_.counts, width, call_.type, more);
    }
  }

  void make_epilogue(unsigned seed) {
    const RowParts& parts = call_.rows;
    const std::int64_t rows = call_.counts[own()];
    const auto bytes = static_cast<std::size_t>(rows * parts.width) * size_of(call_.type);
    if (parts.residual) {
      residual_ = std::make_shared<Memory>(residual(seed));
      epilogue_.residual = residual_->data();
    }
    if (parts.norm) {
      weight_ =
          std::make_shared<Memory>(make_input(Family::kNormal, DataType::kFloat32, parts.width, 5));
      epilogue_.norm = RmsNorm{static_cast<const float*>(weight_->data())};
    }
    if (parts.normed) {
      normed_ = filled(bytes);
      epilogue_.normed = normed_->data();
    }
    if (parts.encoded) {
      const RowLayout layout(BlockFormat(), {rows + 4, parts.width});
      encoded_ = filled(static_cast<std::size_t>(layout.total_bytes()));
      epilogue_.encoded = {static_cast<std::byte*>(encoded_->data()), rows + 4, 3};
    }
    epilogue_.rounding = {.stochastic = parts.draws, .seed = 9, .rank = 2};
  }

  Bytes residual(unsigned seed) const {
    return make_input(Family::kNormal, call_.type, call_.elements(own()), seed * 7 + 1);
  }

  std::vector<Bytes> inputs(unsigned seed) const {
    std::vector<Bytes> contents;
    for (std::size_t chunk = 0; chunk < call_.counts.size(); ++chunk) {
      if (gathers() && chunk != own()) continue;
      contents.push_back(make_input(
          call_.family, call_.type, call_.elements(chunk),
          seed * 131 + static_cast<unsigned>(rank_) * 17 + static_cast<unsigned>(chunk)));
    }
    if (call_.rows.sends_encoded) contents[0] = encoding_of(contents[0]);
    return contents;
  }

  Bytes encoding_of(const Bytes& values) const {
    const RowShape shape{call_.counts[own()], call_.rows.width};
    const RowLayout layout(BlockFormat(), shape);
    Bytes bytes(static_cast<std::size_t>(layout.total_bytes()));
    RowCodec(Codec(BlockFormat())).encode(values.data(), call_.type, shape, bytes.data());
    return bytes;
  }

  CollectiveCall call_;
  int rank_;
  std::vector<std::shared_ptr<Memory>> in_;
  std::vector<std::shared_ptr<Memory>> out_;
  std::vector<const void*> ins_;
  std::vector<void*> outs_;
  std::shared_ptr<Memory> residual_, weight_, normed_, encoded_;  // Of calls of rows, where wanted.
  RowEpilogue epilogue_;
};

using CallBuffers = CallBuffersIn<HostMemory>;

/// Results by call and rank.
using CallResults = std::vector<std::vector<Bytes>>;

/// What the host's Communicator makes of the calls; the input of call c is that of seed c. Throws
/// what a rank throws.
inline CallResults host_results(const std::vector<CollectiveCall>& calls, int size,
                                const Options& options) {
  CallResults results(calls.size(), std::vector<Bytes>(static_cast<std::size_t>(size)));
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (std::unique_ptr<Transport>& transport : make_inproc_group(size)) {
    ranks.push_back(std::make_unique<Communicator>(std::move(transport), options));
  }
  std::vector<std::exception_ptr> errors(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        for (std::size_t c = 0; c < calls.size(); ++c) {
          CallBuffers buffers(calls[c], static_cast<int>(r), static_cast<unsigned>(c));
          CallOptions more;
          more.factor = calls[c].factor;
          buffers.issue(*ranks[r], more);
          results[c][r] = buffers.result();
        }
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return results;
}

/// Calls of flat buffers, with about `base` elements a rank. Rank 1 has an empty chunk.
inline std::vector<CollectiveCall> flat_calls(int size, std::int64_t base) {
  const auto chunks = [&](std::int64_t count) {
    std::vector<std::int64_t> counts;
    for (int r = 0; r < size; ++r) counts.push_back(r == 1 ? 0 : count + 37 * r);
    return counts;
  };
  using enum Operation;
  std::vector<CollectiveCall> calls = {
      {.operation = kAllReduce, .counts = {base * 4}},
      {.operation = kAllReduce,
       .type = DataType::kBfloat16,
       .op = ReduceOp::kAvg,
       .counts = {base * 6 + 111},
       .in_place = true},
      {.operation = kReduceScatter, .counts = chunks(base + 200)},
      {.operation = kAllGather, .type = DataType::kFloat16, .counts = chunks(base + 150)},
      {.operation = kAllReduce, .counts = {257}, .in_place = true, .family = Family::kSpecials},
      {.operation = kReduceScatter,
       .type = DataType::kBfloat16,
       .counts = chunks(base - 200),
       .in_place = true},
      {.operation = kAllGather, .counts = chunks(base), .in_place = true},
  };
  if (size > 1) {
    calls.push_back({.operation = kReduceScatter,
                     .op = ReduceOp::kPremulSum,
                     .counts = chunks(129),
                     .factor = 0.3f});
  }
  return calls;
}

/// Calls of rows, with about `rows` rows a rank; rank 1 has none. Rows of 128 and 256
/// are whole blocks, those of 100 and 300 end in a short one, those of 1 and 3 have an odd number
/// of bytes.
inline std::vector<CollectiveCall> row_calls(int size, std::int64_t rows) {
  std::vector<std::int64_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(r == 1 ? 0 : rows + 5 * r);
  using enum Operation;
  return {
      {.operation = kReduceScatter, .counts = counts, .rows = {.width = 128}},
      {.operation = kReduceScatter,
       .type = DataType::kBfloat16,
       .op = ReduceOp::kAvg,
       .counts = counts,
       .rows = {.width = 300}},
      {.operation = kReduceScatter,
       .type = DataType::kBfloat16,
       .counts = counts,
       .in_place = true,
       .rows = {.width = 256, .residual = true, .norm = true, .normed = true, .encoded = true}},
      {.operation = kReduceScatter,
       .counts = counts,
       .family = Family::kSpecials,
       .rows = {.width = 100, .residual = true, .norm = true, .encoded = true}},
      {.operation = kReduceScatter,
       .type = DataType::kFloat16,
       .counts = counts,
       .rows = {.width = 3, .residual = true, .encoded = true, .quantize = true}},
      {.operation = kAllGather,
       .type = DataType::kBfloat16,
       .counts = counts,
       .rows = {.width = 128}},
      {.operation = kAllGather, .counts = counts, .in_place = true, .rows = {.width = 1}},
      {.operation = kAllGather,
       .type = DataType::kFloat16,
       .counts = counts,
       .rows = {.width = 100, .quantize = false}},
      {.operation = kAllGather, .counts = counts, .rows = {.width = 256, .sends_encoded = true}},
      {.operation = kAllGather,
       .type = DataType::kBfloat16,
       .counts = counts,
       .rows = {.width = 3, .sends_encoded = true, .quantize = false}},
  };
}

/// Every kind of call.
inline std::vector<CollectiveCall> mixed_calls(int size, std::int64_t base = 500) {
  std::vector<CollectiveCall> calls = flat_calls(size, base);
  const std::vector<CollectiveCall> of_rows = row_calls(size, base / 50);
  calls.insert(calls.end(), of_rows.begin(), of_rows.end());
  return calls;
}

/// Options under which every call of a quantized kind is quantized.
inline Options quantize_everything() {
  Options options;
  options.min_numel = 0;
  options.quantize_all_gather = true;
  return options;
}

}  // namespace agoq::testing
