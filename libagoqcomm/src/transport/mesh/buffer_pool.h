// Private memory for messages, reused so that its pages stay mapped and warm.
#pragma once

#include <cstddef>
#include <map>
#include <unordered_set>
#include <vector>

namespace agoq {

/// Not thread-safe. Buffers are aligned to 64 bytes; sizes are rounded up to a quarter of a power
/// of two. Of what is free at most `keep_bytes` is kept. The destructor frees what is still taken.
class BufferPool {
 public:
  explicit BufferPool(std::size_t keep_bytes) : keep_bytes_(keep_bytes) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  static std::size_t rounded(std::size_t bytes);

  /// Throws Error(kSystem) when there is no memory.
  std::byte* take(std::size_t bytes);
  /// `bytes` as they were given to take().
  void give(std::byte* buffer, std::size_t bytes);
  /// Bytes taken and not given back.
  std::size_t taken_bytes() const { return taken_bytes_; }

 private:
  std::size_t keep_bytes_;
  std::size_t taken_bytes_ = 0;
  std::size_t free_bytes_ = 0;
  std::map<std::size_t, std::vector<std::byte*>> free_;
  std::unordered_set<std::byte*> taken_;
};

}  // namespace agoq
