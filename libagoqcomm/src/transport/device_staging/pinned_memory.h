// Pinned memory that grows to the largest use so far.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "agoqcomm/device_runtime.h"

namespace agoq {

/// Not thread-safe.
class PinnedMemory {
 public:
  explicit PinnedMemory(DeviceRuntime& runtime) : runtime_(runtime) {}
  ~PinnedMemory() {
    for (std::byte* memory : all_) runtime_.free_pinned(memory);
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  /// At least `bytes`, or null for none. What was returned before stays valid, since copies from or
  /// to it may still be on a stream; doubling keeps all of it together under twice the last.
  std::byte* reserve(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    if (bytes > capacity_) {
      const std::size_t capacity = std::max(bytes, 2 * capacity_);
      all_.reserve(all_.size() + 1);
      all_.push_back(static_cast<std::byte*>(runtime_.allocate_pinned(capacity)));
      capacity_ = capacity;
    }
    return all_.back();
  }

 private:
  DeviceRuntime& runtime_;
  std::vector<std::byte*> all_;
  std::size_t capacity_ = 0;
};

}  // namespace agoq
