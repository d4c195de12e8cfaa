// Collective calls as data, run by the host's Communicator and by DeviceCommunicators over any
// device: the two must agree byte for byte. Knows no test framework.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

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

/// One rank's buffers of a call, on the heap. They stay where they are.
class CallBuffers {
 public:
  CallBuffers(const CollectiveCall& call, int rank, unsigned seed) : call_(call), rank_(rank) {
    const bool scatters = call.operation == Operation::kReduceScatter;
    const bool gathers = call.operation == Operation::kAllGather;
    const auto own = static_cast<std::size_t>(gathers || scatters ? rank : 0);
    for (std::size_t chunk = 0; chunk < call.counts.size(); ++chunk) {
      if (gathers && chunk != own) continue;
      in_.push_back(
          make_input(call.family, call.type, call.counts[chunk],
                     seed * 131 + static_cast<unsigned>(rank) * 17 + static_cast<unsigned>(chunk)));
    }
    for (std::size_t chunk = 0; chunk < call.counts.size(); ++chunk) {
      if (scatters && chunk != own) continue;
      out_.emplace_back(static_cast<std::size_t>(call.counts[chunk]) * size_of(call.type),
                        std::byte{0x5A});
    }
    for (Bytes& bytes : in_) ins_.push_back(bytes.data());
    for (Bytes& bytes : out_) outs_.push_back(bytes.data());
    if (!call.in_place) return;
    if (gathers) {
      out_[own] = in_[0];
      ins_[0] = outs_[own] = out_[own].data();
    } else {
      outs_[0] = in_[scatters ? own : 0].data();
    }
  }

  /// `more` is CallOptions or DeviceCall.
  template <typename Communicator, typename More>
  void issue(Communicator& communicator, const More& more) {
    switch (call_.operation) {
      case Operation::kReduceScatter:
        communicator.reduce_scatter(ins_, call_.counts, outs_[0], call_.type, call_.op, more);
        break;
      case Operation::kAllGather:
        communicator.all_gather(ins_[0], outs_, call_.counts, call_.type, more);
        break;
      default:
        communicator.all_reduce(ins_[0], outs_[0], call_.counts[0], call_.type, call_.op, more);
    }
  }

  template <typename DeviceCommunicator>
  std::size_t workspace(const DeviceCommunicator& communicator) const {
    switch (call_.operation) {
      case Operation::kReduceScatter:
        return communicator.reduce_scatter_workspace(call_.counts, call_.type, call_.op);
      case Operation::kAllGather:
        return communicator.all_gather_workspace(call_.counts, call_.type);
      default:
        return communicator.all_reduce_workspace(call_.counts[0], call_.type, call_.op);
    }
  }

  /// What the call gave this rank.
  Bytes result() const {
    Bytes bytes;
    for (std::size_t i = 0; i < outs_.size(); ++i) {
      const auto* from = static_cast<const std::byte*>(outs_[i]);
      bytes.insert(bytes.end(), from, from + out_[i].size());
    }
    return bytes;
  }

  /// Buffers and their sizes, for a device that must copy them to itself.
  const std::vector<Bytes>& inputs() const { return in_; }

  /// Gives the inputs, where they are, the contents that another seed's have.
  void refill(unsigned seed) {
    const CallBuffers other(call_, rank_, seed);
    const bool gathers = call_.operation == Operation::kAllGather;
    for (std::size_t i = 0; i < in_.size(); ++i) {
      Bytes& place = gathers && call_.in_place ? out_[static_cast<std::size_t>(rank_)] : in_[i];
      std::copy(other.in_[i].begin(), other.in_[i].end(), place.begin());
    }
  }

 private:
  CollectiveCall call_;
  int rank_;
  std::vector<Bytes> in_;
  std::vector<Bytes> out_;
  std::vector<const void*> ins_;
  std::vector<void*> outs_;
};

}  // namespace agoq::testing
