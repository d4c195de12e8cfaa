// Reduce-scatter, flat: every piece goes straight to the rank that owns its chunk, which sums it.
//
// One encoding: the sum of the decoded pieces goes straight to the caller's type.
#pragma once

#include <span>
#include <vector>

#include "collective/flat_window.h"

namespace agoq {

/// Not thread-safe.
class ReduceScatter : public FlatWindow {
 public:
  /// in[r] is this rank's piece of rank r's chunk; `out` receives this rank's chunk and may be
  /// in[rank].
  ReduceScatter(Transport& transport, SegmentExchange& exchange, ChunkPlan plan,
                std::span<const void* const> in, void* out);

 protected:
  void open(Step& step) override;
  bool work(Step& step) override;

  void expect_pieces(Step& step);
  void send_pieces(const Step& step);
  /// Makes a sum once all of its pieces have come.
  virtual void make(const Sum& sum, std::int64_t step, const void* own, void* out);

 private:
  std::vector<const void*> in_;
  void* out_;
};

}  // namespace agoq
