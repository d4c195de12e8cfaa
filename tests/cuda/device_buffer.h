// Memory that kernels read and write, at a chosen misalignment. One interface, two homes: the heap,
// for kernels that run in the emulator, and a CUDA device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "codec_inputs.h"

namespace agoq::testing {

/// Not thread-safe. `contents` are the first bytes; all others are 0xA5 until something writes
/// them.
class DeviceBuffer {
 public:
  /// `misalignment` is the distance from a 256-byte boundary.
  explicit DeviceBuffer(std::int64_t size, int misalignment = 0, const Bytes& contents = {});
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  std::byte* data() const { return data_; }
  /// Waits for the kernels started so far.
  Bytes read() const;
  /// False where something wrote around the buffer. On the heap the sanitizers watch instead.
  bool is_intact() const;

 private:
  std::byte* allocation_;
  std::byte* data_;
  std::int64_t size_;
};

/// Sets the order in which the emulator runs threads; a device chooses its own.
void set_schedule(std::uint64_t seed);
/// Kernels started so far, or -1 where nobody counts.
std::int64_t kernel_launches();

}  // namespace agoq::testing
