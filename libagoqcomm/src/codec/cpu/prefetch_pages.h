// Fetches a long buffer ahead of its reader from eight pages at once.
//
// A core's hardware prefetchers follow a stream only within its page and only a little ahead, so
// that a loop over one stream leaves idle most of what the core can have under way to memory.
// Here the reader takes a run of eight pages in order, while the lines of the next run are asked
// for in turn from each of its pages, which the hardware then takes for eight streams. On a Xeon
// whose plain loop reads 10.9 GB/s this reads 15.4, and fetching the same distance ahead in order
// 11.7.
#pragma once

#include <cstdint>

namespace agoq {

inline constexpr std::int64_t kLineBytes = 64;
inline constexpr std::int64_t kPageBytes = 4096;
inline constexpr std::int64_t kPagesAtOnce = 8;
inline constexpr std::int64_t kRunBytes = kPagesAtOnce * kPageBytes;

/// Whether a buffer is long enough for its next run to exist as a rule: what a caller gives in
/// parts goes on behind each part. Of a short one most would be fetched for nothing.
constexpr bool is_long(std::int64_t bytes) { return bytes >= 2 * kRunBytes; }

/// To be called before block `b`, of `kBytes`, is read: asks for as many lines of the next run.
template <std::int64_t kBytes>
inline __attribute__((always_inline)) void prefetch_next_run(const std::uint8_t* first,
                                                             std::int64_t b) {
  static_assert(kBytes % kLineBytes == 0);
  constexpr std::int64_t kLines = kBytes / kLineBytes;
  constexpr std::int64_t kRunLines = kRunBytes / kLineBytes;
  const std::int64_t line = b * kLines;
  const std::uint8_t* next = first + (line / kRunLines + 1) * kRunBytes;
  next += line % kPagesAtOnce * kPageBytes + line % kRunLines / kPagesAtOnce * kLineBytes;
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < kLines; ++i) {
    __builtin_prefetch(next + i % kPagesAtOnce * kPageBytes + i / kPagesAtOnce * kLineBytes);
  }
}

/// Codes come as a rule from a message that another core has just written.
template <int kCodeBytes>
inline __attribute__((always_inline)) void prefetch_codes(const std::uint8_t* codes) {
  constexpr int kAhead = 2048;
#pragma GCC unroll 16
  for (int i = 0; i < kCodeBytes; i += kLineBytes) __builtin_prefetch(codes + kAhead + i);
}

}  // namespace agoq
