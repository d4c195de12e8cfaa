// A copy that leaves the cache alone.
#pragma once

#include <cstddef>

namespace agoq {

/// Copies through non-temporal stores where the machine has them; any alignment. The bytes are
/// visible to other threads after stream_fence().
void stream_copy(void* to, const void* from, std::size_t bytes) noexcept;
void stream_fence() noexcept;

}  // namespace agoq
