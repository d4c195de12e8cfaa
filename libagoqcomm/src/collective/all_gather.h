// All-gather, flat: every rank sends its chunk to all others.
//
// One encoding: the sender decodes its own bytes, so that all ranks hold the same numbers.
#pragma once

#include <span>
#include <vector>

#include "collective/flat_window.h"

namespace agoq {

/// Not thread-safe.
class AllGather final : public FlatWindow {
 public:
  /// `in` is this rank's chunk; out[r] receives rank r's. `in` may be out[rank].
  AllGather(Transport& transport, SegmentExchange& exchange, ChunkPlan plan, const void* in,
            std::span<void* const> out);

 protected:
  void open(Step& step) override;
  bool work(Step& step) override;

 private:
  void* at(int rank, std::int64_t step) const;

  const void* in_;
  std::vector<void*> out_;
};

}  // namespace agoq
