// Kernels with one mistake each, of every kind that the emulator and the sanitizers must notice,
// and the same kernels without it. `planted_faults NAME` runs one under several schedules; ctest
// knows by which words each must be noticed in this build.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "cuemu/cuemu.h"

namespace {

enum class Fault {
  kNone,
  kNoBarrierAfterWrite,
  kNoBarrierBeforeReuse,
  kLoadPastTheEnd,
  kExitBeforeShuffle,
  kShuffleInDivergence,
  kShuffleTooWide,
  kNoSyncwarp,
  kReadsAnothersStore,
  kSharedPastTheEnd,
  kTwoThreadsOneAddress,
  kMisalignedLoad,
};

constexpr unsigned kThreads = 256;
constexpr unsigned kAll = 0xffffffffu;

unsigned largest_of_lanes(unsigned value, unsigned width) {
  for (unsigned distance = width / 2; distance > 0; distance /= 2) {
    value = max(value,
                __shfl_xor_sync(kAll, value, static_cast<int>(distance), static_cast<int>(width)));
  }
  return value;
}

/// The largest of each 256 numbers, several times over in the same shared memory.
template <Fault kFault>
__global__ void block_maximum(const unsigned* in, unsigned* out, unsigned rounds) {
  __shared__ unsigned of_warp[kThreads / 32];
  for (unsigned round = 0; round < rounds; ++round) {
    const unsigned part = blockIdx.x * rounds + round;
    const unsigned largest = largest_of_lanes(in[part * kThreads + threadIdx.x], 32);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = largest;
    if (kFault != Fault::kNoBarrierAfterWrite) __syncthreads();
    unsigned total = 0;
    for (const unsigned warp : of_warp) total = max(total, warp);
    if (threadIdx.x == 0) out[part] = total;
    if (kFault != Fault::kNoBarrierBeforeReuse) __syncthreads();
  }
}

/// The largest of each 64 numbers, four a thread.
template <Fault kFault>
__global__ void vector_maximum(const uint4* in, unsigned* out, unsigned vectors) {
  const unsigned v = blockIdx.x * blockDim.x + threadIdx.x;
  if (kFault == Fault::kExitBeforeShuffle && v >= vectors) return;
  const bool is_live = kFault == Fault::kLoadPastTheEnd ? v <= vectors : v < vectors;
  uint4 four = make_uint4(0, 0, 0, 0);
  if (is_live) four = in[v];
  unsigned largest = max(max(four.x, four.y), max(four.z, four.w));
  if (kFault != Fault::kShuffleInDivergence || largest != 0) {
    largest = largest_of_lanes(largest, kFault == Fault::kShuffleTooWide ? 32 : 16);
  }
  if (threadIdx.x % 16 == 0 && v < vectors) out[v / 16] = largest;
}

/// Neighbouring lanes exchange through shared memory.
template <Fault kFault>
__global__ void swap_lanes(const unsigned* in, unsigned* out) {
  __shared__ unsigned buffer[kThreads];
  buffer[threadIdx.x] = in[threadIdx.x];
  if (kFault != Fault::kNoSyncwarp) __syncwarp();
  out[threadIdx.x] = buffer[threadIdx.x ^ 1];
}

/// Two passes over a row in memory without a barrier between them, as the kernel of rows makes: the
/// second may read what its own thread stored, and nothing else.
template <Fault kFault>
__global__ void two_passes(unsigned* row, unsigned* out, unsigned rounds) {
  for (unsigned round = 0; round < rounds; ++round) row[round * kThreads + threadIdx.x] += 1;
  const unsigned place = kFault == Fault::kReadsAnothersStore ? threadIdx.x ^ 1 : threadIdx.x;
  for (unsigned round = 0; round < rounds; ++round) {
    out[round * kThreads + place] = 2 * row[round * kThreads + place];
  }
}

template <Fault kFault>
__global__ void through_shared(const unsigned* in, unsigned* out) {
  __shared__ unsigned buffer[kThreads];
  const unsigned at = threadIdx.x + (kFault == Fault::kSharedPastTheEnd ? 1 : 0);
  buffer[at] = in[threadIdx.x];
  __syncthreads();
  out[kFault == Fault::kTwoThreadsOneAddress ? threadIdx.x / 2 : threadIdx.x] = buffer[at];
}

/// Exactly as many numbers, so that redzones follow, plus one before them on request.
class Numbers {
 public:
  explicit Numbers(std::size_t count, std::size_t skipped = 0) : skipped_(skipped), count_(count) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 256, (count + skipped) * sizeof(unsigned)) != 0) std::abort();
    memory_.reset(static_cast<unsigned*>(memory));
    unsigned state = 12345;
    for (unsigned& number : *this) {
      state = state * 1664525u + 1013904223u;
      number = state % 3 == 0 ? 0 : state >> 1;
    }
  }
  unsigned* data() const { return memory_.get() + skipped_; }
  unsigned* begin() const { return data(); }
  unsigned* end() const { return data() + count_; }
  unsigned largest(std::size_t from, std::size_t to) const {
    return *std::max_element(begin() + from, begin() + std::min(to, count_));
  }

 private:
  struct Free {
    void operator()(unsigned* memory) const { std::free(memory); }
  };
  std::unique_ptr<unsigned, Free> memory_;
  std::size_t skipped_;
  std::size_t count_;
};

cudaLaunchConfig_t launch_of(unsigned blocks) {
  cudaLaunchConfig_t config;
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kThreads);
  return config;
}

template <Fault kFault>
bool block_maximum_is_right() {
  constexpr unsigned kRounds = 4, kBlocks = 3;
  const Numbers in(kThreads * kRounds * kBlocks), out(kRounds * kBlocks);
  const auto config = launch_of(kBlocks);
  cudaLaunchKernelEx(&config, block_maximum<kFault>, in.data(), out.data(), kRounds);
  for (unsigned i = 0; i < kRounds * kBlocks; ++i) {
    if (out.data()[i] != in.largest(i * kThreads, (i + 1) * kThreads)) return false;
  }
  return true;
}

template <Fault kFault>
bool vector_maximum_is_right() {
  constexpr unsigned kVectors = 1000;
  const Numbers in(4 * kVectors, kFault == Fault::kMisalignedLoad ? 1 : 0);
  const Numbers out((kVectors + 15) / 16);
  std::fill(in.begin() + 40, in.begin() + 48, 0);
  const void* numbers = in.data();
  const auto config = launch_of(4);
  cudaLaunchKernelEx(&config, vector_maximum<kFault>, static_cast<const uint4*>(numbers),
                     out.data(), kVectors);
  for (unsigned i = 0; i < (kVectors + 15) / 16; ++i) {
    if (out.data()[i] != in.largest(64 * i, 64 * (i + 1))) return false;
  }
  return true;
}

template <Fault kFault>
bool swap_is_right() {
  const Numbers in(kThreads), out(kThreads);
  const auto config = launch_of(1);
  cudaLaunchKernelEx(&config, swap_lanes<kFault>, in.data(), out.data());
  for (unsigned i = 0; i < kThreads; ++i) {
    if (out.data()[i] != in.data()[i ^ 1]) return false;
  }
  return true;
}

template <Fault kFault>
bool two_passes_are_right() {
  constexpr unsigned kRounds = 3;
  const Numbers row(kThreads * kRounds), out(kThreads * kRounds);
  const std::vector<unsigned> before(row.begin(), row.end());
  const auto config = launch_of(1);
  cudaLaunchKernelEx(&config, two_passes<kFault>, row.data(), out.data(), kRounds);
  for (unsigned i = 0; i < kThreads * kRounds; ++i) {
    if (out.data()[i] != 2 * (before[i] + 1)) return false;
  }
  return true;
}

template <Fault kFault>
bool shared_is_right() {
  const Numbers in(kThreads), out(kThreads);
  const auto config = launch_of(1);
  cudaLaunchKernelEx(&config, through_shared<kFault>, in.data(), out.data());
  // Which of two threads wrote last is not asked: the race itself is what must be noticed.
  return kFault == Fault::kTwoThreadsOneAddress || std::equal(in.begin(), in.end(), out.begin());
}

struct Case {
  const char* name;
  bool (*is_right)();
};

constexpr Case kCases[] = {
    {"correct_block_maximum", block_maximum_is_right<Fault::kNone>},
    {"correct_vector_maximum", vector_maximum_is_right<Fault::kNone>},
    {"correct_swap", swap_is_right<Fault::kNone>},
    {"correct_two_passes", two_passes_are_right<Fault::kNone>},
    {"correct_shared", shared_is_right<Fault::kNone>},
    {"no_barrier_after_write", block_maximum_is_right<Fault::kNoBarrierAfterWrite>},
    {"no_barrier_before_reuse", block_maximum_is_right<Fault::kNoBarrierBeforeReuse>},
    {"load_past_the_end", vector_maximum_is_right<Fault::kLoadPastTheEnd>},
    {"exit_before_shuffle", vector_maximum_is_right<Fault::kExitBeforeShuffle>},
    {"shuffle_in_divergence", vector_maximum_is_right<Fault::kShuffleInDivergence>},
    {"shuffle_too_wide", vector_maximum_is_right<Fault::kShuffleTooWide>},
    {"misaligned_load", vector_maximum_is_right<Fault::kMisalignedLoad>},
    {"no_syncwarp", swap_is_right<Fault::kNoSyncwarp>},
    {"reads_anothers_store", two_passes_are_right<Fault::kReadsAnothersStore>},
    {"shared_past_the_end", shared_is_right<Fault::kSharedPastTheEnd>},
    {"two_threads_one_address", shared_is_right<Fault::kTwoThreadsOneAddress>},
};

}  // namespace

int main(int argc, char** argv) {
  // ctest takes a signal for a failure whatever was printed; what the emulator printed decides.
  std::signal(SIGABRT, [](int) { std::_Exit(1); });
  for (const Case& planted : kCases) {
    if (argc != 2 || argv[1] != std::string(planted.name)) continue;
    for (unsigned seed = 0; seed < 10; ++seed) {
      cuemu::set_options({.seed = seed});
      if (planted.is_right()) continue;
      std::printf("wrong result under schedule %u\n", seed);
      return 1;
    }
    std::printf("right under all schedules\n");
    return 0;
  }
  std::fprintf(stderr, "usage: planted_faults NAME, with one of the names in the source\n");
  return 2;
}
