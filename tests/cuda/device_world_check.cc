// The device collectives on a real device: ranks as threads that share it, against the host's
// Communicator, byte for byte; over host memory; in a graph that is replayed; over NCCL. Needs no
// test framework. Says how many checks passed and failed, and what a graph saves.
//
//   device_world_check [JSON]   figures also to this file
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>

#include "agoqcomm/cuda_codec.h"
#include "agoqcomm/cuda_row_codec.h"
#include "agoqcomm/device_communicator.h"
#include "agoqcomm/device_inproc.h"
#include "agoqcomm/device_staging.h"
#include "agoqcomm/nccl.h"
#include "device_calls.h"
#include "nccl_owner.h"

namespace agoq::testing {
namespace {

/// ctest's word for a test that could not run.
constexpr int kSkipped = 77;

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

/// Memory of the device; see HostMemory.
class CudaMemory {
 public:
  explicit CudaMemory(const Bytes& contents) : size_(contents.size()) {
    check(cudaMalloc(&data_, std::max<std::size_t>(size_, 1)));
    write(contents);
  }
  ~CudaMemory() { cudaFree(data_); }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  void* data() { return data_; }
  Bytes read() const {
    Bytes contents(size_);
    check(cudaDeviceSynchronize());
    check(cudaMemcpy(contents.data(), data_, size_, cudaMemcpyDeviceToHost));
    return contents;
  }
  void write(const Bytes& contents) {
    check(cudaMemcpy(data_, contents.data(), size_, cudaMemcpyHostToDevice));
    check(cudaDeviceSynchronize());
  }

 private:
  void* data_ = nullptr;
  std::size_t size_;
};

using CudaBuffers = CallBuffersIn<CudaMemory>;

struct Rank {
  std::unique_ptr<DeviceCommunicator> communicator;
  cudaStream_t stream = nullptr;
  std::unique_ptr<CudaMemory> workspace;  // One for all calls, in the stream's order.

  void issue(CudaBuffers& buffers, float factor) {
    DeviceCall call;
    call.stream = stream;
    call.factor = factor;
    call.workspace = {workspace->data(), buffers.workspace(*communicator)};
    buffers.issue(*communicator, call);
  }
};

/// Ranks over transports, each with a stream of its own.
class World {
 public:
  static constexpr std::size_t kWorkspace = std::size_t{64} << 20;

  World(std::vector<std::unique_ptr<DeviceTransport>> transports, const Options& options,
        std::int64_t segment_numel) {
    for (std::unique_ptr<DeviceTransport>& transport : transports) {
      Rank rank;
      check(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
      rank.workspace = std::make_unique<CudaMemory>(Bytes(kWorkspace));
      rank.communicator = std::make_unique<DeviceCommunicator>(
          std::move(transport), std::make_unique<CudaCodec>(options.format), cuda_runtime(),
          options, segment_numel, std::make_unique<CudaRowCodec>(options.format));
      ranks.push_back(std::move(rank));
    }
  }
  ~World() {
    cudaDeviceSynchronize();
    for (const Rank& rank : ranks) cudaStreamDestroy(rank.stream);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Runs body(rank) on a thread a rank; throws what one throws.
  void on_all(const std::function<void(std::size_t)>& body) {
    std::vector<std::exception_ptr> errors(ranks.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      threads.emplace_back([&, r] {
        try {
          body(r);
        } catch (...) {
          errors[r] = std::current_exception();
          ranks[r].communicator->abort("another rank's check failed");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

  std::vector<std::unique_ptr<CudaBuffers>> buffers(const CollectiveCall& call, unsigned seed) {
    std::vector<std::unique_ptr<CudaBuffers>> of_ranks;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      of_ranks.push_back(std::make_unique<CudaBuffers>(call, static_cast<int>(r), seed));
    }
    return of_ranks;
  }

  std::vector<Rank> ranks;
};

void expect(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

// All calls one after another without a wait between, compared with the host's.
void compare(std::vector<std::unique_ptr<DeviceTransport>> transports, std::int64_t base,
             std::int64_t segment_numel, const Options& options) {
  const auto size = static_cast<int>(transports.size());
  const std::vector<CollectiveCall> calls = mixed_calls(size, base);
  const CallResults expected = host_results(calls, size, options);
  World world(std::move(transports), options, segment_numel);
  std::vector<std::vector<std::unique_ptr<CudaBuffers>>> buffers;
  for (std::size_t c = 0; c < calls.size(); ++c) {
    buffers.push_back(world.buffers(calls[c], static_cast<unsigned>(c)));
  }
  world.on_all([&](std::size_t r) {
    for (std::size_t c = 0; c < calls.size(); ++c) {
      world.ranks[r].issue(*buffers[c][r], calls[c].factor);
    }
  });
  check(cudaDeviceSynchronize());
  for (std::size_t c = 0; c < calls.size(); ++c) {
    for (std::size_t r = 0; r < buffers[c].size(); ++r) {
      expect(buffers[c][r]->result() == expected[c][r],
             calls[c].name() + " differs from the host's on rank " + std::to_string(r));
    }
  }
  for (Rank& rank : world.ranks) expect(rank.communicator->error().empty(), "an error is left");
}

std::vector<std::unique_ptr<DeviceTransport>> staged(int size) {
  std::vector<std::unique_ptr<DeviceTransport>> transports;
  for (std::unique_ptr<Transport>& host : make_inproc_group(size)) {
    transports.push_back(
        make_staging_transport(std::move(host), cuda_runtime(), std::chrono::seconds(30)));
  }
  return transports;
}

// One call of every rank in one graph: the other ranks' streams fork from rank 0's and join it.
cudaGraphExec_t capture(World& world, const std::function<void(std::size_t)>& issue) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  cudaStream_t origin = world.ranks[0].stream;
  // Relaxed: the ranks' threads and this one take part in one capture.
  check(cudaStreamBeginCapture(origin, cudaStreamCaptureModeRelaxed));
  check(cudaEventRecord(event, origin));
  for (std::size_t r = 1; r < world.ranks.size(); ++r) {
    check(cudaStreamWaitEvent(world.ranks[r].stream, event, 0));
  }
  world.on_all(issue);
  for (std::size_t r = 1; r < world.ranks.size(); ++r) {
    check(cudaEventRecord(event, world.ranks[r].stream));
    check(cudaStreamWaitEvent(origin, event, 0));
  }
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(origin, &graph));
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiateWithFlags(&executable, graph, 0));
  check(cudaGraphDestroy(graph));
  check(cudaEventDestroy(event));
  return executable;
}

void replay_with_other_inputs(int size) {
  const Options options = quantize_everything();
  for (const CollectiveCall& call : mixed_calls(size, 40000)) {
    World world(make_device_inproc_group(size, cuda_runtime()), options, 4096);
    const auto buffers = world.buffers(call, 0);
    const auto issue = [&](std::size_t r) { world.ranks[r].issue(*buffers[r], call.factor); };
    world.on_all(issue);  // The warm-up.
    check(cudaDeviceSynchronize());
    cudaGraphExec_t graph = capture(world, issue);
    for (const unsigned seed : {1u, 2u}) {
      for (const auto& of_rank : buffers) of_rank->refill(seed);
      check(cudaGraphLaunch(graph, world.ranks[0].stream));
      check(cudaDeviceSynchronize());
      const CallResults expected =
          host_results(std::vector<CollectiveCall>(seed + 1, call), size, options);
      for (std::size_t r = 0; r < buffers.size(); ++r) {
        expect(buffers[r]->result() == expected.back()[r],
               call.name() + " replayed differs from the host's on rank " + std::to_string(r));
      }
    }
    check(cudaGraphExecDestroy(graph));
  }
}

struct Figures {
  double eager_us = 0;  ///< Host time to put an all-reduce of two ranks on their streams.
  double graph_us = 0;  ///< To launch it as a graph.
};

// Host time of one call, the device being idle at its start; the median of several.
double median_us(const std::function<void()>& issue) {
  std::vector<double> times;
  for (int i = 0; i < 31; ++i) {
    check(cudaDeviceSynchronize());
    const auto begin = std::chrono::steady_clock::now();
    issue();
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - begin;
    times.push_back(taken.count());
  }
  check(cudaDeviceSynchronize());
  std::nth_element(times.begin(), times.begin() + 15, times.end());
  return times[15];
}

Figures launch_cost() {
  const CollectiveCall call{.counts = {1 << 20}, .in_place = true};
  World world(make_device_inproc_group(2, cuda_runtime()), quantize_everything(), 0);
  const auto buffers = world.buffers(call, 0);
  const auto issue = [&](std::size_t r) { world.ranks[r].issue(*buffers[r], 1.0f); };
  Figures figures;
  figures.eager_us = median_us([&] { world.on_all(issue); });
  cudaGraphExec_t graph = capture(world, issue);
  figures.graph_us = median_us([&] { check(cudaGraphLaunch(graph, world.ranks[0].stream)); });
  check(cudaGraphExecDestroy(graph));
  return figures;
}

void over_nccl(const NcclOwner& nccl, int size) {
  const std::vector<void*> communicators = init_all(nccl, size);
  std::vector<std::unique_ptr<DeviceTransport>> transports;
  for (void* communicator : communicators) transports.push_back(make_nccl_transport(communicator));
  compare(std::move(transports), 40000, 4096, quantize_everything());
  for (void* communicator : communicators) nccl.destroy(communicator);
}

class Checks {
 public:
  void run(const std::string& name, const std::function<void()>& body) {
    try {
      body();
      ++passed_;
      std::printf("passed %s\n", name.c_str());
    } catch (const std::exception& error) {
      ++failed_;
      std::printf("FAILED %s: %s\n", name.c_str(), error.what());
    }
    std::fflush(stdout);
  }
  /// The last line, and the status of the process.
  int finish() const {
    std::printf("%d passed, %d failed\n", passed_, failed_);
    return failed_ == 0 && passed_ > 0 ? 0 : 1;
  }

 private:
  int passed_ = 0;
  int failed_ = 0;
};

void check_nccl(Checks& checks) {
  // Several ranks on one device need this, and a version that knows it.
  constexpr int kKnowsSharedDevices = 23000;
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  checks.run("NCCL, 1 rank", [] { over_nccl(find_nccl(), 1); });
  int version = 0;
  try {
    find_nccl().version(&version);
  } catch (const std::exception&) {
    return;  // The check above has failed and said so.
  }
  if (version < kKnowsSharedDevices) {
    std::printf("not run: NCCL, 2 ranks: version %d cannot share one device\n", version);
    return;
  }
  checks.run("NCCL, 2 ranks on one device", [] { over_nccl(find_nccl(), 2); });
}

int run(const char* json) {
  Checks checks;
  for (const int size : {1, 2, 3, 4, 8}) {
    checks.run("inproc, " + std::to_string(size) + " ranks, short segments", [&] {
      compare(make_device_inproc_group(size, cuda_runtime()), 40000, 4096, quantize_everything());
    });
  }
  checks.run("inproc, 4 ranks, segments as they come", [] {
    compare(make_device_inproc_group(4, cuda_runtime()), 3'000'000, 0, quantize_everything());
  });
  checks.run("inproc, 3 ranks, stochastic rounding", [] {
    Options options = quantize_everything();
    options.stochastic_rounding = true;
    compare(make_device_inproc_group(3, cuda_runtime()), 40000, 4096, options);
  });
  for (const int size : {2, 3}) {
    checks.run("staging, " + std::to_string(size) + " ranks",
               [&] { compare(staged(size), 40000, 4096, quantize_everything()); });
    checks.run("graph, " + std::to_string(size) + " ranks, replayed with other inputs",
               [&] { replay_with_other_inputs(size); });
  }
  check_nccl(checks);
  Figures figures;
  checks.run("launch cost", [&] { figures = launch_cost(); });
  std::printf(
      "all-reduce of two ranks, 1 Mi elements: %.1f us of host time to issue, %.1f us as a "
      "graph\n",
      figures.eager_us, figures.graph_us);
  if (json != nullptr) {
    if (std::FILE* file = std::fopen(json, "w")) {
      std::fprintf(file, "{\"eager_us\": %.2f, \"graph_us\": %.2f}\n", figures.eager_us,
                   figures.graph_us);
      std::fclose(file);
    }
  }
  return checks.finish();
}

}  // namespace
}  // namespace agoq::testing

int main(int argc, char** argv) {
  // One hardware queue a stream: where ranks share a device, one rank's stream that waits for the
  // host must not stand before another's in the same queue.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  if (agoq::CudaCodec::device_count() == 0) {
    std::printf("skipped: %s\n", agoq::CudaCodec::is_built() ? "CUDA reports no device"
                                                             : "this build has no CUDA kernels");
    return agoq::testing::kSkipped;
  }
  return agoq::testing::run(argc > 1 ? argv[1] : nullptr);
}
