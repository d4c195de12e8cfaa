// Whether memory that a call writes is memory that it reads.
#pragma once

#include <cstdint>

namespace agoq {

/// Some bytes of one are bytes of the other. A null buffer overlaps none.
inline bool overlaps(const void* a, std::int64_t a_bytes, const void* b, std::int64_t b_bytes) {
  if (a == nullptr || b == nullptr) return false;
  const auto first = reinterpret_cast<std::uintptr_t>(a);
  const auto second = reinterpret_cast<std::uintptr_t>(b);
  return first < second + static_cast<std::uintptr_t>(b_bytes) &&
         second < first + static_cast<std::uintptr_t>(a_bytes);
}

/// The same for two buffers of `bytes` that may be one and the same.
inline bool overlaps_in_part(const void* a, const void* b, std::int64_t bytes) {
  return a != b && overlaps(a, bytes, b, bytes);
}

}  // namespace agoq
