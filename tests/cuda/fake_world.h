// Ranks as threads that share a simulated device.
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
#include "fake_row_codec.h"
#include "group_testing.h"

namespace agoq::testing {

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
          std::move(transport), std::move(codec), runtime, options, segment_numel,
          std::make_unique<FakeRowCodec>(device, options.format));
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
  CallResults run(const std::vector<CollectiveCall>& calls) {
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
    CallResults results(calls.size());
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

inline void expect_equal(const CallResults& results, const CallResults& expected,
                         const std::vector<CollectiveCall>& calls, const std::string& where) {
  for (std::size_t c = 0; c < calls.size(); ++c) {
    for (std::size_t r = 0; r < expected[c].size(); ++r) {
      EXPECT_TRUE(results[c][r] == expected[c][r])
          << calls[c].name() << ", call " << c << ", rank " << r << ", " << where;
    }
  }
}

/// Several segments of this make a chunk of mixed_calls().
inline constexpr std::int64_t kShortSegment = 128;

}  // namespace agoq::testing
