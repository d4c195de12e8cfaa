#include "transport/mesh/send_memory.h"

#include <algorithm>
#include <limits>
#include <string>

#include "agoqcomm/error.h"

namespace agoq {

SendBuffer HeapSendMemory::acquire(std::size_t bytes) {
  // One buffer is always granted, so that a message above the bound still travels.
  if (pool_.taken_bytes() != 0 && pool_.taken_bytes() + BufferPool::rounded(bytes) > bound_) {
    throw Error(ErrorCode::kSystem, "send buffers of " + std::to_string(pool_.taken_bytes()) +
                                        " bytes are held or in flight and " +
                                        std::to_string(bytes) + " more would pass the bound of " +
                                        std::to_string(bound_) +
                                        "; hold no more than send_buffer_limit() of them");
  }
  return {pool_.take(bytes), bytes, 1};
}

int HeapSendMemory::limit(std::size_t bytes) const {
  const std::size_t count = std::max<std::size_t>(1, bound_ / BufferPool::rounded(bytes));
  return static_cast<int>(std::min<std::size_t>(count, std::numeric_limits<int>::max()));
}

}  // namespace agoq
