// The scheduler of cuemu.h. Never compiled with -fsanitize=thread, as fiber.cc: between CUDA
// threads only __syncthreads and __syncwarp order memory, and this file tells ThreadSanitizer just
// that.
#include "cuemu/cuemu.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "cuemu/fiber.h"

#if defined(CUEMU_TSAN)
#include <sanitizer/tsan_interface.h>
#define CUEMU_RELEASE(address) __tsan_release(address)
#define CUEMU_ACQUIRE(address) __tsan_acquire(address)
#else
#define CUEMU_RELEASE(address) (void)(address)
#define CUEMU_ACQUIRE(address) (void)(address)
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

// The linker's names for the ends of the section that __shared__ fills, if anything does.
extern "C" __attribute__((weak)) unsigned char __start_cuemu_shared[], __stop_cuemu_shared[];

namespace cuemu {
namespace {

enum class State : std::uint8_t { kReady, kWaiting, kDone };

struct Thread {
  Fiber fiber;
  uint3 index{};
  unsigned lane = 0;
  unsigned warp = 0;
  State state = State::kReady;
  // Where it waits.
  Meeting meeting = Meeting::kNone;
  int detail = 0;
  unsigned mask = 0;
};

struct Warp {
  /// Two turns: a lane may enter the next meeting before a slow one has read the results of this.
  std::uint64_t brought[2][32] = {};
  std::uint8_t turn[32] = {};
  unsigned arrived = 0;
  unsigned live = 0;
};

Options options;
std::uint64_t random_state;
std::uint64_t launch_count;

Fiber host;
std::vector<std::unique_ptr<Thread>> threads;
std::vector<Warp> warps;
std::vector<Thread*> ready;  // a thread is in it at most once; reserved before threads run
std::size_t ready_head;
Thread* current;
unsigned alive;
unsigned at_barrier;
char barrier_tag;
const std::function<void()>* body;

std::uint32_t next_random() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return static_cast<std::uint32_t>(random_state >> 16);
}

void make_ready(Thread& thread) {
  thread.state = State::kReady;
  thread.meeting = Meeting::kNone;
  ready.push_back(&thread);
}

/// Takes the next thread to run out of `ready`, as Options::seed says.
Thread* take_ready() {
  if (ready_head == ready.size()) fail("deadlock");
  if (options.seed == 0) {
    Thread* first = ready[ready_head++];
    if (ready_head == ready.size()) {
      ready.clear();
      ready_head = 0;
    }
    return first;
  }
  const std::uint32_t r = next_random();
  if (options.seed % 2 == 0 || r % 16 == 0) {
    std::swap(ready.back(), ready[(r >> 4) % ready.size()]);
  }
  Thread* last = ready.back();
  ready.pop_back();
  return last;
}

void wait(Thread& thread) { Fiber::switch_to(thread.fiber, host); }

void release_barrier() {
  if (alive == 0 || at_barrier != alive) return;  // threads that have ended do not count
  at_barrier = 0;
  for (const auto& thread : threads) {
    if (thread->state == State::kWaiting && thread->meeting == Meeting::kSyncThreads) {
      make_ready(*thread);
    }
  }
}

void run_thread() {
  Fiber::arrived();
  (*body)();
  Thread& self = *current;
  Warp& warp = warps[self.warp];
  self.state = State::kDone;
  --alive;
  warp.live &= ~(1u << self.lane);
  for (const auto& other : threads) {
    if (other->warp == self.warp && other->state == State::kWaiting &&
        (other->mask >> self.lane & 1) != 0) {
      fail("a lane left that others wait for");
    }
  }
  release_barrier();
  Fiber::switch_to(self.fiber, host, true);
  std::abort();
}

// Not memset: AddressSanitizer's redzones between the variables are in this range too.
__attribute__((no_sanitize("address"))) void spoil_shared_memory() {
  for (unsigned char* p = __start_cuemu_shared; p != __stop_cuemu_shared; ++p) {
    *const_cast<volatile unsigned char*>(p) = 0xCD;
  }
}

void start_threads(unsigned count) {
  while (threads.size() < count) threads.push_back(std::make_unique<Thread>());
  ready.clear();
  ready_head = 0;
  ready.reserve(4 * threads.size());
  warps.assign((count + 31) / 32, Warp{});
  alive = count;
  at_barrier = 0;
  for (unsigned i = 0; i < count; ++i) {
    Thread& thread = *threads[i];
    thread.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
    thread.lane = i % 32;
    thread.warp = i / 32;
    warps[thread.warp].live |= 1u << thread.lane;
    thread.fiber.prepare(run_thread);
    make_ready(thread);
  }
}

void run_block() {
  const unsigned count = blockDim.x * blockDim.y * blockDim.z;
  spoil_shared_memory();
  start_threads(count);
  while (alive > 0) {
    current = nullptr;
    current = take_ready();
    threadIdx = current->index;
    Fiber::switch_to(host, current->fiber);
  }
  for (unsigned i = 0; i < count; ++i) threads[i]->fiber.join(host);
}

}  // namespace

void set_options(const Options& new_options) { options = new_options; }
std::uint64_t launches() { return launch_count; }
unsigned lane() { return current->lane; }

void fail(const char* what) {
  static const char* const kNames[] = {"nothing", "__syncthreads", "__syncwarp", "a shuffle"};
  std::fprintf(stderr, "cuemu: %s (block %u,%u)\n", what, blockIdx.x, blockIdx.y);
  if (current != nullptr) std::fprintf(stderr, "  thread %u runs\n", current->index.x);
  for (const auto& thread : threads) {
    if (thread->state != State::kWaiting) continue;
    std::fprintf(stderr, "  thread %u waits at %s, mask %08x\n", thread->index.x,
                 kNames[static_cast<int>(thread->meeting)], thread->mask);
  }
  std::abort();
}

void meet_block() {
  Thread& self = *current;
  self.state = State::kWaiting;
  self.meeting = Meeting::kSyncThreads;
  self.mask = 0;
  ++at_barrier;
  CUEMU_RELEASE(&barrier_tag);
  release_barrier();
  wait(self);
  CUEMU_ACQUIRE(&barrier_tag);
}

const std::uint64_t* meet_lanes(Meeting meeting, int detail, unsigned mask, std::uint64_t brought) {
  Thread& self = *current;
  Warp& warp = warps[self.warp];
  if ((mask >> self.lane & 1) == 0) fail("a lane is not in its own mask");
  if ((mask & ~warp.live) != 0) fail("a mask names a lane that has left or never was");
  std::uint64_t* const results = warp.brought[warp.turn[self.lane]];
  warp.turn[self.lane] ^= 1;
  results[self.lane] = brought;
  self.state = State::kWaiting;
  self.meeting = meeting;
  self.detail = detail;
  self.mask = mask;
  warp.arrived |= 1u << self.lane;
  if (meeting == Meeting::kSyncWarp) CUEMU_RELEASE(&warp);
  if ((warp.arrived & mask) == mask) {
    for (unsigned lane = 0; lane < 32; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      const Thread& other = *threads[self.warp * 32 + lane];
      if (other.meeting != meeting || other.mask != mask || other.detail != detail) {
        fail("lanes of one mask meet at different places");
      }
    }
    warp.arrived &= ~mask;
    for (unsigned lane = 0; lane < 32; ++lane) {
      if ((mask >> lane & 1) != 0) make_ready(*threads[self.warp * 32 + lane]);
    }
  }
  wait(self);
  if (meeting == Meeting::kSyncWarp) CUEMU_ACQUIRE(&warp);
  return results;
}

void run(dim3 grid, dim3 block, const std::function<void()>& thread) {
  ++launch_count;
  gridDim = grid;
  blockDim = block;
  random_state = (options.seed + 1) * 0x9E3779B97F4A7C15ull;
  body = &thread;
  host.adopt_thread();
  const unsigned columns =
      options.thread_blocks == 0 ? grid.x : std::min(grid.x, options.thread_blocks);
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z) {
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
      for (blockIdx.x = 0; blockIdx.x < columns; ++blockIdx.x) run_block();
    }
  }
  current = nullptr;
}

}  // namespace cuemu
