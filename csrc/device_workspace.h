// The memory that a group's device calls work in.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

#include "agoqcomm/device_communicator.h"

namespace agoq {

/// All calls of a group follow each other on one stream, so one buffer serves them all, however
/// many are in flight; it grows to the largest call so far. Captured calls get a buffer that
/// nothing else uses and that is never given back: a graph may be replayed beside other calls,
/// until the group ends.
///
/// Not thread-safe. Memory comes from torch's allocator, for the current stream.
class DeviceWorkspacePool {
 public:
  explicit DeviceWorkspacePool(c10::Device device) : device_(device) {}

  /// Throws Error(kInvalidArgument) under capture when no earlier call was as large.
  DeviceWorkspace take(std::size_t bytes, bool capturing);
  /// Bytes held.
  std::size_t held() const;
  std::size_t peak() const { return peak_; }

 private:
  const c10::Device device_;
  at::Tensor eager_;
  std::vector<at::Tensor> captured_;  ///< The last is in use for captures, and the largest.
  std::size_t peak_ = 0;
};

}  // namespace agoq
