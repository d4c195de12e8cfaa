#include "plain_loops.h"

#include <stdexcept>

namespace agoq::bench {
namespace {

typedef long long Line __attribute__((vector_size(64), aligned(64), may_alias));

/// Keeps reads that nothing else uses.
volatile long long sink;
/// Unknown to the compiler: what is updated is read and written, but keeps its value.
volatile long long zero = 0;

// One clone an ISA, chosen at load time, so that the loops are as wide as the kernels.
#if defined(__x86_64__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default"), flatten))
#else
#define CLONES
#endif

#define PLAIN_LOOP(name, kRead, kWrite, kUpdate)                                     \
  CLONES void name(std::size_t steps, const void* read, void* write, void* update) { \
    const Line* from = static_cast<const Line*>(read);                               \
    Line* to = static_cast<Line*>(write);                                            \
    const Line none = Line{} + zero;                                                 \
    Line* both = static_cast<Line*>(update);                                         \
    Line all{};                                                                      \
    for (std::size_t step = 0; step < steps; ++step) {                               \
      for (int i = 0; i < kRead; ++i) all ^= *from++;                                \
      for (int i = 0; i < kUpdate; ++i, ++both) *both = *both ^ none;                \
      for (int i = 0; i < kWrite; ++i) *to++ = all;                                  \
    }                                                                                \
    long long folded = 0;                                                            \
    for (int i = 0; i < 8; ++i) folded ^= all[i];                                    \
    sink = folded;                                                                   \
  }

// name, lines read, written, updated in place
#define PLAIN_LOOPS(X)           \
  X(read_only, 4, 0, 0)          \
  X(write_only, 0, 4, 0)         \
  X(copy, 4, 4, 0)               \
  X(eight_to_one, 8, 1, 0)       \
  X(sixteen_to_three, 16, 3, 0)  \
  X(eight_to_three, 8, 3, 0)     \
  X(one_to_eight, 1, 8, 0)       \
  X(three_to_sixteen, 3, 16, 0)  \
  X(three_to_eight, 3, 8, 0)     \
  X(sum_eight, 1, 1, 8)          \
  X(sum_sixteen, 3, 3, 16)       \
  X(sum_eight_by_three, 3, 3, 8) \
  X(add_eight, 1, 0, 8)          \
  X(add_sixteen, 3, 0, 16)       \
  X(add_eight_by_three, 3, 0, 8) \
  X(four_to_one, 4, 1, 0)        \
  X(two_to_one, 2, 1, 0)         \
  X(one_to_four, 1, 4, 0)        \
  X(one_to_two, 1, 2, 0)         \
  X(sum_wide, 1, 1, 4)           \
  X(sum_half, 1, 1, 2)           \
  X(add_wide, 1, 0, 4)           \
  X(add_half, 1, 0, 2)           \
  X(read_half, 2, 0, 0)          \
  X(write_half, 0, 2, 0)         \
  X(update_wide, 0, 0, 4)        \
  X(update_half, 0, 0, 2)

PLAIN_LOOPS(PLAIN_LOOP)

struct Row {
  LinesPerStep lines;
  void (*loop)(std::size_t, const void*, void*, void*);
};
constexpr int kRows = 27;
const Row* rows() {
#define ROW(name, kRead, kWrite, kUpdate) {{kRead, kWrite, kUpdate}, name},
  static const Row table[kRows] = {PLAIN_LOOPS(ROW)};
#undef ROW
  return table;
}

}  // namespace

void move_lines(LinesPerStep lines, std::size_t steps, const void* read, void* write,
                void* update) {
  for (int i = 0; i < kRows; ++i) {
    const Row& row = rows()[i];
    if (row.lines.read == lines.read && row.lines.write == lines.write &&
        row.lines.update == lines.update) {
      return row.loop(steps, read, write, update);
    }
  }
  throw std::invalid_argument("there is no plain loop for this combination of lines");
}

}  // namespace agoq::bench
