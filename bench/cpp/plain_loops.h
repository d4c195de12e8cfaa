// What the codec is measured against: loops that move the same bytes and compute next to nothing.
#pragma once

#include <cstddef>

namespace agoq::bench {

/// One step touches this many 64-byte lines of each of the three buffers.
struct LinesPerStep {
  int read = 0;
  int write = 0;
  int update = 0;  ///< Read and written back in place.
};

/// Ordinary loads and stores, as wide as the machine has them, with no prefetch.
void move_lines(LinesPerStep lines, std::size_t steps, const void* read, void* write, void* update);

}  // namespace agoq::bench
