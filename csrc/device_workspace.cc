#include "device_workspace.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "agoqcomm/error.h"

namespace agoq {
namespace {

constexpr std::size_t kAlignment = 256;

std::size_t bytes_of(const at::Tensor& memory) { return memory.defined() ? memory.nbytes() : 0; }

/// Bytes that can be used in it.
std::size_t room(const at::Tensor& memory) {
  return memory.defined() ? memory.nbytes() - kAlignment : 0;
}

DeviceWorkspace aligned(const at::Tensor& memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data_ptr());
  const auto start = (address + kAlignment - 1) / kAlignment * kAlignment;
  return {reinterpret_cast<void*>(start), room(memory)};
}

}  // namespace

DeviceWorkspace DeviceWorkspacePool::take(std::size_t bytes, bool capturing) {
  if (bytes == 0) return {};
  if (!capturing) {
    if (room(eager_) < bytes) {
      eager_ = at::Tensor();  // First, so that the allocator may give the same memory again.
      eager_ = at::empty({static_cast<std::int64_t>(bytes + kAlignment)},
                         at::TensorOptions().dtype(at::kByte).device(device_));
      peak_ = std::max(peak_, held());
    }
    return aligned(eager_);
  }
  if (captured_.empty() || room(captured_.back()) < bytes) {
    if (room(eager_) < bytes) {
      throw Error(ErrorCode::kInvalidArgument,
                  "agoq: a call of this size is captured in a graph before one has run outside; "
                  "make the same call once before the capture, so that nothing is allocated in it");
    }
    captured_.push_back(std::exchange(eager_, at::Tensor()));
  }
  return aligned(captured_.back());
}

std::size_t DeviceWorkspacePool::held() const {
  std::size_t bytes = bytes_of(eager_);
  for (const auto& memory : captured_) bytes += bytes_of(memory);
  return bytes;
}

}  // namespace agoq
