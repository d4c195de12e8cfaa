// How a buffer is cut up to travel.
//
// A *block* is the run of elements that share one scale; nothing cuts through it, so that encoding
// a buffer whole or in parts gives the same bytes. A *chunk* is the part of the buffer that one
// rank owns: it sums the others' pieces of it (reduce-scatter), or is the only one to have it at
// first (all-gather). A chunk is cut into *segments* of whole blocks, the unit that is encoded,
// sent and decoded at once; only a chunk's last segment may be shorter. Segment s of every chunk
// travels in *step* s. The *window* is how many steps a rank keeps open at once: while one is on
// the wire, another is encoded and a third decoded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace agoq {

struct Segment {
  std::int64_t offset = 0;  ///< In elements, from the start of the chunk.
  std::int64_t count = 0;
};

/// Throws Error(kInvalidArgument) where `segments` of `segment_numel` elements, which `longest`
/// elements make, are more than a message tag can count.
void check_segments(std::int64_t segments, std::int64_t longest, std::int64_t segment_numel);

/// Value type. Equal on all ranks of a call, since it follows from what the call label holds.
class ChunkPlan {
 public:
  /// `count` elements in `ranks` chunks that differ by one block at most; where the count is no
  /// multiple of `block`, the last chunk that is not empty ends short.
  static ChunkPlan balanced(std::int64_t count, int ranks, std::int64_t block,
                            std::int64_t segment_numel);
  /// Chunks as the caller states them. Each starts a block of its own.
  static ChunkPlan given(std::span<const std::int64_t> counts, std::int64_t block,
                         std::int64_t segment_numel);

  int ranks() const { return static_cast<int>(counts_.size()); }
  std::int64_t total() const { return offsets_.back(); }
  std::int64_t chunk_offset(int rank) const { return offsets_[rank]; }
  std::int64_t chunk_count(int rank) const { return counts_[rank]; }

  /// Elements of every segment but a chunk's last.
  std::int64_t segment_numel() const { return segment_numel_; }
  /// Segments of the longest chunk, and at least 1: step 0 runs even where there is nothing to
  /// move, so that every pair of ranks compares labels.
  std::int64_t steps() const { return steps_; }
  /// Segment `step` of a rank's chunk; empty beyond the chunk's end.
  Segment segment(int rank, std::int64_t step) const;

 private:
  ChunkPlan(std::vector<std::int64_t> counts, std::int64_t block, std::int64_t segment_numel);

  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> offsets_;  // One more than chunks: the last is the total.
  std::int64_t segment_numel_;
  std::int64_t steps_;
};

}  // namespace agoq
