// Lets the host compiler build CUDA source and run its kernels on the CPU, one fiber a CUDA thread.
//
// A file that is written for nvcc is compiled as C++ with this header included first (-include). It
// covers what the kernels of this project and the tests of the emulator use, no more. Thread blocks
// run one after another on one OS thread, so that sanitizers see ordinary memory.
//
// Checked while a kernel runs, since the device leaves it undefined: a mask that names a lane that
// has left or is elsewhere, a caller outside its own mask, and a deadlock. Any of these reports to
// stderr and aborts. Shared memory holds garbage before each thread block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
// Thread blocks run one after another, so a static is the block's shared memory; the section lets
// the scheduler find it.
#define __shared__ static __attribute__((section("cuemu_shared")))

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) uint2 {
  unsigned x, y;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}
/// Byte k of the result is the byte, of the eight of low and high, that nibble k of `selector`
/// names.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const std::uint64_t both = low | static_cast<std::uint64_t>(high) << 32;
  unsigned result = 0;
  for (unsigned k = 0; k < 4; ++k) {
    const unsigned chosen = selector >> (4 * k) & 7u;
    result |= static_cast<unsigned>(both >> (8 * chosen) & 0xffu) << (8 * k);
  }
  return result;
}

/// The upper word of high and low, shifted left together.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned amount) {
  const std::uint64_t both = low | static_cast<std::uint64_t>(high) << 32;
  return static_cast<unsigned>(both << (amount & 31u) >> 32);
}
/// The lower word of them, shifted right together.
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned amount) {
  const std::uint64_t both = low | static_cast<std::uint64_t>(high) << 32;
  return static_cast<unsigned>(both >> (amount & 31u));
}

// Set by the scheduler whenever it lets a thread run.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace cuemu {

/// What holds for the launches from now on.
struct Options {
  /// Order of the threads. 0: by index. Even: at random. Odd: mostly the newest ready one, so that
  /// one warp runs as far ahead of the others as barriers allow.
  std::uint64_t seed = 0;
  /// How many of a grid's thread blocks run, from the first of a row on; 0: all. For buffers too
  /// long to be gone through.
  unsigned thread_blocks = 0;
};
void set_options(const Options& options);
/// Kernels started so far.
std::uint64_t launches();

enum class Meeting : std::uint8_t { kNone, kSyncThreads, kSyncWarp, kShuffle };

void run(dim3 grid, dim3 block, const std::function<void()>& thread);
void meet_block();
/// Waits for the lanes of `mask`, and returns what each brought. `detail` must be one for all.
const std::uint64_t* meet_lanes(Meeting meeting, int detail, unsigned mask, std::uint64_t brought);
unsigned lane();
[[noreturn]] void fail(const char* what);

}  // namespace cuemu

inline void __syncthreads() { cuemu::meet_block(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  cuemu::meet_lanes(cuemu::Meeting::kSyncWarp, 0, mask, 0);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int distance, int width = 32) {
  static_assert(sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const std::uint64_t* brought =
      cuemu::meet_lanes(cuemu::Meeting::kShuffle, distance * 64 + width, mask, bits);
  const unsigned source = cuemu::lane() ^ static_cast<unsigned>(distance);
  const unsigned end = (cuemu::lane() & ~(width - 1u)) + static_cast<unsigned>(width);
  if (source >= end) return value;
  if ((mask >> source & 1) == 0) cuemu::fail("a shuffle reads a lane outside its mask");
  std::memcpy(&value, brought + source, sizeof(T));
  return value;
}

// The few functions of CUDA's runtime that start kernels.

using cudaStream_t = struct CudaStream*;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

/// Returns when the kernel has ended, which no correct caller can tell.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
  const dim3& grid = config->gridDim;
  const dim3& block = config->blockDim;
  if (grid.x == 0 || grid.y == 0 || grid.y > 65535 || block.x == 0 || block.x > 1024) {
    return cudaErrorInvalidValue;
  }
  cuemu::run(grid, block, [&] { kernel(arguments...); });
  return cudaSuccess;
}

inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "invalid argument";
}
