// Where SendBuffers come from.
#pragma once

#include <cstdint>

#include "agoqcomm/transport.h"
#include "transport/mesh/buffer_pool.h"

namespace agoq {

/// Not thread-safe. Handles are never 0.
class SendMemory {
 public:
  virtual ~SendMemory() = default;
  virtual SendBuffer acquire(std::size_t bytes) = 0;
  virtual void recycle(const SendBuffer& buffer) = 0;
  virtual int limit(std::size_t bytes) const = 0;
};

/// Private memory, bounded.
class HeapSendMemory final : public SendMemory {
 public:
  explicit HeapSendMemory(std::size_t bytes) : bound_(bytes), pool_(bytes) {}

  SendBuffer acquire(std::size_t bytes) override;
  void recycle(const SendBuffer& buffer) override { pool_.give(buffer.data, buffer.bytes); }
  int limit(std::size_t bytes) const override;

 private:
  std::size_t bound_;
  BufferPool pool_;
};

}  // namespace agoq
