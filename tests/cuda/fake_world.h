// Ranks as threads that share a simulated device, and what the host's Communicator makes of the
// same calls.
#pragma once

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "agoqcomm/device_communicator.h"
#include "agoqcomm/device_inproc.h"
#include "device_calls.h"
#include "fake_codec.h"
#include "fake_device.h"
#include "group_testing.h"

namespace agoq::testing {

/// Results by call and rank.
using Results = std::vector<std::vector<Bytes>>;

/// Input of call c is that of seed c.
inline Results host_results(const std::vector<CollectiveCall>& calls, int size,
                            const Options& options) {
  Results results(calls.size(), std::vector<Bytes>(static_cast<std::size_t>(size)));
  expect_success(run_ranks(size, options, [&](Communicator& communicator) {
    for (std::size_t c = 0; c < calls.size(); ++c) {
      CallBuffers buffers(calls[c], communicator.rank(), static_cast<unsigned>(c));
      CallOptions more;
      more.factor = calls[c].factor;
      buffers.issue(communicator, more);
      results[c][static_cast<std::size_t>(communicator.rank())] = buffers.result();
    }
  }));
  return results;
}

/// One rank of a FakeWorld: its stream, and workspace that grows as a caching allocator's would.
struct FakeRank {
  std::unique_ptr<DeviceCommunicator> communicator;
  const FakeCodec* codec = nullptr;
  void* stream = nullptr;
  std::vector<std::pair<void*, std::size_t>> workspaces;

  /// Issues a call in a workspace of its own, which is anyone's once the call is done.
  void issue(FakeDevice& device, CallBuffers& buffers, float factor) {
    DeviceCall call;
    call.stream = stream;
    call.factor = factor;
    call.workspace.bytes = buffers.workspace(*communicator);
    call.workspace.data = ::operator new(call.workspace.bytes + 1, std::align_val_t{256});
    workspaces.emplace_back(call.workspace.data, call.workspace.bytes);
    buffers.issue(*communicator, call);
    device.poison(call.workspace.data, call.workspace.bytes, stream);
  }
};

/// `device` and what stands before it, the runtime that the library sees, outlive the world.
class FakeWorld {
 public:
  FakeWorld(FakeDevice& device, DeviceRuntime& runtime,
            std::vector<std::unique_ptr<DeviceTransport>> transports, const Options& options,
            std::int64_t segment_numel)
      : device_(device) {
    for (std::unique_ptr<DeviceTransport>& transport : transports) {
      auto codec = std::make_unique<FakeCodec>(device, options.format);
      FakeRank rank;
      rank.codec = codec.get();
      rank.stream = device.create_stream();
      rank.communicator = std::make_unique<DeviceCommunicator>(
          std::move(transport), std::move(codec), runtime, options, segment_numel);
      ranks_.push_back(std::move(rank));
    }
  }
  FakeWorld(FakeDevice& device, int size, const Options& options, std::int64_t segment_numel)
      : FakeWorld(device, device, make_device_inproc_group(size, device), options, segment_numel) {}
  ~FakeWorld() {
    for (const FakeRank& rank : ranks_) {
      for (const auto& [memory, bytes] : rank.workspaces) {
        ::operator delete(memory, std::align_val_t{256});
      }
    }
  }
  FakeWorld(const FakeWorld&) = delete;
  FakeWorld& operator=(const FakeWorld&) = delete;

  FakeRank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  int size() const { return static_cast<int>(ranks_.size()); }

  /// Runs body(rank) on a thread a rank; says how each ended.
  std::vector<Outcome> on_all(const std::function<void(int)>& body) {
    std::vector<Outcome> outcomes(ranks_.size());
    std::vector<std::thread> threads;
    for (int r = 0; r < size(); ++r) {
      threads.emplace_back(
          [&, r] { outcomes[static_cast<std::size_t>(r)] = outcome_of([&] { body(r); }); });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  /// All calls one after another, the device lagging behind.
  Results run(const std::vector<CollectiveCall>& calls) {
    std::vector<std::vector<std::unique_ptr<CallBuffers>>> buffers(calls.size());
    for (std::size_t c = 0; c < calls.size(); ++c) {
      for (int r = 0; r < size(); ++r) {
        buffers[c].push_back(std::make_unique<CallBuffers>(calls[c], r, static_cast<unsigned>(c)));
      }
    }
    expect_success(on_all([&](int r) {
      for (std::size_t c = 0; c < calls.size(); ++c) {
        rank(r).issue(device_, *buffers[c][static_cast<std::size_t>(r)], calls[c].factor);
      }
    }));
    device_.finish();
    Results results(calls.size());
    for (std::size_t c = 0; c < calls.size(); ++c) {
      for (const std::unique_ptr<CallBuffers>& of_rank : buffers[c]) {
        results[c].push_back(of_rank->result());
      }
    }
    return results;
  }

 private:
  FakeDevice& device_;
  std::vector<FakeRank> ranks_;
};

inline void expect_equal(const Results& results, const Results& expected,
                         const std::vector<CollectiveCall>& calls, const std::string& where) {
  for (std::size_t c = 0; c < calls.size(); ++c) {
    for (std::size_t r = 0; r < expected[c].size(); ++r) {
      EXPECT_TRUE(results[c][r] == expected[c][r])
          << calls[c].name() << ", call " << c << ", rank " << r << ", " << where;
    }
  }
}

/// Every kind of call, small enough for many runs and long enough for several segments of
/// kShortSegment elements.
inline std::vector<CollectiveCall> mixed_calls(int size) {
  const auto chunks = [&](std::int64_t base) {
    std::vector<std::int64_t> counts;
    for (int r = 0; r < size; ++r) counts.push_back(r == 1 ? 0 : base + 37 * r);
    return counts;
  };
  using enum Operation;
  std::vector<CollectiveCall> calls = {
      {.operation = kAllReduce, .counts = {2000}},
      {.operation = kAllReduce,
       .type = DataType::kBfloat16,
       .op = ReduceOp::kAvg,
       .counts = {3111},
       .in_place = true},
      {.operation = kReduceScatter, .counts = chunks(700)},
      {.operation = kAllGather, .type = DataType::kFloat16, .counts = chunks(650)},
      {.operation = kAllReduce, .counts = {257}, .in_place = true, .family = Family::kSpecials},
      {.operation = kReduceScatter,
       .type = DataType::kBfloat16,
       .counts = chunks(300),
       .in_place = true},
      {.operation = kAllGather, .counts = chunks(500), .in_place = true},
  };
  if (size > 1) {
    calls.push_back({.operation = kReduceScatter,
                     .op = ReduceOp::kPremulSum,
                     .counts = chunks(129),
                     .factor = 0.3f});
  }
  return calls;
}

inline constexpr std::int64_t kShortSegment = 128;

}  // namespace agoq::testing
