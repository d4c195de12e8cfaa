// Collective calls as data, run by the host's Communicator and by DeviceCommunicators over any
// device: the two must agree byte for byte. Knows no test framework.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agoqcomm/communicator.h"
#include "agoqcomm/inproc.h"
#include "agoqcomm/types.h"
#include "codec_inputs.h"

namespace agoq::testing {

struct CollectiveCall {
  Operation operation = Operation::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  /// An all-reduce has one count, the others one a rank.
  std::vector<std::int64_t> counts;
  bool in_place = false;
  float factor = 1.0f;
  Family family = Family::kNormal;

  std::string name() const {
    std::string text = std::string(to_string(operation)) + "/" + std::string(to_string(type)) +
                       "/" + std::string(to_string(op)) + (in_place ? "/in place" : "");
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

/// One rank's buffers of a call.
template <typename Memory>
class CallBuffersIn {
 public:
  CallBuffersIn(const CollectiveCall& call, int rank, unsigned seed) : call_(call), rank_(rank) {
    for (const Bytes& input : inputs(seed)) in_.push_back(std::make_unique<Memory>(input));
    const auto own = static_cast<std::size_t>(rank);
    for (std::size_t chunk = 0; chunk < call.counts.size(); ++chunk) {
      if (scatters() && chunk != own) continue;
      const auto bytes = static_cast<std::size_t>(call.counts[chunk]) * size_of(call.type);
      out_.push_back(std::make_shared<Memory>(Bytes(bytes, std::byte{0x5A})));
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
  }

  /// `more` is CallOptions or DeviceCall.
  template <typename Communicator, typename More>
  void issue(Communicator& communicator, const More& more) {
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
    if (scatters()) {
      return communicator.reduce_scatter_workspace(call_.counts, call_.type, call_.op);
    }
    if (gathers()) return communicator.all_gather_workspace(call_.counts, call_.type);
    return communicator.all_reduce_workspace(call_.counts[0], call_.type, call_.op);
  }

  /// What the call gave this rank.
  Bytes result() const {
    Bytes bytes;
    for (const auto& memory : out_) {
      const Bytes part = memory->read();
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    return bytes;
  }

  /// Gives the inputs, where they are, the contents that another seed's have.
  void refill(unsigned seed) {
    const std::vector<Bytes> contents = inputs(seed);
    for (std::size_t i = 0; i < in_.size(); ++i) in_[i]->write(contents[i]);
  }

 private:
  bool scatters() const { return call_.operation == Operation::kReduceScatter; }
  bool gathers() const { return call_.operation == Operation::kAllGather; }

  std::vector<Bytes> inputs(unsigned seed) const {
    std::vector<Bytes> contents;
    for (std::size_t chunk = 0; chunk < call_.counts.size(); ++chunk) {
      if (gathers() && chunk != static_cast<std::size_t>(rank_)) continue;
      contents.push_back(make_input(
          call_.family, call_.type, call_.counts[chunk],
          seed * 131 + static_cast<unsigned>(rank_) * 17 + static_cast<unsigned>(chunk)));
    }
    return contents;
  }

  CollectiveCall call_;
  int rank_;
  std::vector<std::shared_ptr<Memory>> in_;
  std::vector<std::shared_ptr<Memory>> out_;
  std::vector<const void*> ins_;
  std::vector<void*> outs_;
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

/// Every kind of call, with about `base` elements a rank. Rank 1 has an empty chunk.
inline std::vector<CollectiveCall> mixed_calls(int size, std::int64_t base = 500) {
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

/// Options under which every call of a quantized kind is quantized.
inline Options quantize_everything() {
  Options options;
  options.min_numel = 0;
  options.quantize_all_gather = true;
  return options;
}

}  // namespace agoq::testing
