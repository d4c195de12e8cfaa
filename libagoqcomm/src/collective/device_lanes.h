// The two streams that a device collective runs on, and the events that tie them together.
//
// Kernels run on the caller's stream, what the transport does on a stream of the group's own, so
// that a segment is encoded while another is on the wire. There is no other order between the two
// than what is said here.
#pragma once

#include <array>
#include <cstdint>

#include "agoqcomm/device_runtime.h"

namespace agoq {

/// What a step has on the wire: pieces on the way to their owners, or results to everyone.
enum class Traffic : std::uint8_t { kPieces = 0, kResults = 1 };

/// Not thread-safe. Everything is made at construction, so that calls make nothing.
class DeviceLanes {
 public:
  explicit DeviceLanes(DeviceRuntime& runtime);
  ~DeviceLanes();
  DeviceLanes(const DeviceLanes&) = delete;
  DeviceLanes& operator=(const DeviceLanes&) = delete;

  DeviceRuntime& runtime() const { return runtime_; }
  void* wire() const { return wire_; }

  /// What is put on the wire from now on waits for what is on `compute` now.
  void fork(void* compute);
  /// Marks the end of a step's traffic on the wire. At most two steps of a kind are marked and not
  /// yet waited for.
  void mark(Traffic traffic, std::int64_t step);
  /// What is put on `compute` from now on waits for the marked end.
  void join(Traffic traffic, std::int64_t step, void* compute);

 private:
  void* marker(Traffic traffic, std::int64_t step) const {
    return markers_[static_cast<std::size_t>(traffic) * 2 + static_cast<std::size_t>(step % 2)];
  }
  void destroy() noexcept;

  DeviceRuntime& runtime_;
  void* wire_ = nullptr;
  void* computed_ = nullptr;
  std::array<void*, 4> markers_{};
};

}  // namespace agoq
