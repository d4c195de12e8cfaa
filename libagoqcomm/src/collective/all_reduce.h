// All-reduce, two phases: a reduce-scatter whose owners send every summed segment on at once.
//
// Two encodings for any number of ranks: the owner encodes its sum once, and every rank, the owner
// too, decodes those very bytes.
#pragma once

#include "collective/reduce_scatter.h"

namespace agoq {

/// Not thread-safe.
class AllReduce final : public ReduceScatter {
 public:
  /// `in` and `out` hold plan.total() elements and may be the same memory.
  AllReduce(Transport& transport, SegmentExchange& exchange, const ChunkPlan& plan, const void* in,
            void* out);

 protected:
  void open(Step& step) override;
  bool work(Step& step) override;
  void make(const Sum& sum, std::int64_t step, const void* own, void* out) override;

 private:
  void* at(Extent extent) const;

  std::byte* out_;
};

}  // namespace agoq
