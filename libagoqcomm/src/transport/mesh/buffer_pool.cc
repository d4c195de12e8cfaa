#include "transport/mesh/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>

#include "agoqcomm/error.h"

namespace agoq {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSmallest = 4096;

}  // namespace

BufferPool::~BufferPool() {
  for (auto& [bytes, buffers] : free_) {
    for (std::byte* buffer : buffers) std::free(buffer);
  }
  for (std::byte* buffer : taken_) std::free(buffer);
}

std::size_t BufferPool::rounded(std::size_t bytes) {
  if (bytes <= kSmallest) return kSmallest;
  const std::size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

std::byte* BufferPool::take(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  std::byte* buffer = nullptr;
  const auto found = free_.find(size);
  if (found != free_.end() && !found->second.empty()) {
    buffer = found->second.back();
    found->second.pop_back();
    free_bytes_ -= size;
  } else {
    buffer = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
    if (buffer == nullptr) {
      throw Error(ErrorCode::kSystem,
                  "no memory for a message buffer of " + std::to_string(size) + " bytes");
    }
  }
  taken_.insert(buffer);
  taken_bytes_ += size;
  return buffer;
}

void BufferPool::give(std::byte* buffer, std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  taken_.erase(buffer);
  taken_bytes_ -= size;
  if (free_bytes_ + size > keep_bytes_) {
    std::free(buffer);
    return;
  }
  free_[size].push_back(buffer);
  free_bytes_ += size;
}

}  // namespace agoq
