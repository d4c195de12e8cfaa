// Reduce-scatter, flat: every piece goes straight to the rank that owns its chunk, which sums it.
//
// One encoding: the sum of the decoded pieces goes straight to the caller's type.
#pragma once

#include <span>
#include <vector>

#include "collective/step_window.h"

namespace agoq {

/// Not thread-safe.
class ReduceScatter : public StepWindow {
 public:
  /// in[r] is this rank's piece of rank r's chunk; `out` receives this rank's chunk and may be
  /// in[rank].
  ReduceScatter(Transport& transport, SegmentExchange& exchange, ChunkPlan plan,
                std::span<const void* const> in, void* out);

 protected:
  void open(Step& step) override;
  bool work(Step& step) override;
  bool hears_from_all(std::int64_t step) const override { return travels(rank(), step); }

  void expect_pieces(Step& step);
  void send_pieces(const Step& step);
  /// Sums the pieces of the own segment once all have come.
  virtual void sum(const Step& step, Extent extent, const void* own, void* out);

 private:
  std::vector<const void*> in_;
  void* out_;
};

}  // namespace agoq
