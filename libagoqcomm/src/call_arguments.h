// What a call's arguments must be before anything is sent. Each check throws
// Error(kInvalidArgument) that names the operation and what is wrong.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "agoqcomm/types.h"

namespace agoq {

void check_count(Operation operation, std::int64_t count);
/// `count` elements are to be in `memory`, the argument called `name`.
void check_memory(Operation operation, const void* memory, std::int64_t count, const char* name);
void check_root(Operation operation, int root, int size);
/// `peer` is another rank than `rank`.
void check_peer(Operation operation, int peer, int rank, int size);
/// A count and a buffer for each rank.
void check_chunks(Operation operation, std::span<const void* const> chunks,
                  std::span<const std::int64_t> counts, int size, const char* name);
/// The counts alone, where this rank needs no buffers.
void check_counts(Operation operation, std::span<const std::int64_t> counts, int size);
/// What a rank sends to itself is what it receives from itself.
void check_own_counts(Operation operation, std::int64_t sent, std::int64_t received);

std::int64_t total(std::span<const std::int64_t> counts);

/// Buffers to receive in, as check_chunks() takes them.
inline std::span<const void* const> as_const(std::span<void* const> chunks) {
  return {chunks.data(), chunks.size()};
}

}  // namespace agoq
