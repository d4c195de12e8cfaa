// All-reduce in one shot: every rank sends all it has to all others, and each sums for itself.
//
// One latency instead of two, for more bytes and the whole sum on every rank: for small calls. The
// result is that of the two phases bit for bit, since both sum each element in rank order.
#pragma once

#include <cstdint>
#include <string_view>

#include "collective/collective.h"
#include "collective/receive_set.h"
#include "collective/segment_exchange.h"

namespace agoq {

/// Whether an exact all-reduce of `bytes` is one. The same on all ranks, as its arguments are.
bool is_one_shot(std::string_view transport, int size, std::int64_t bytes);

/// Not thread-safe.
class OneShotAllReduce final : public Collective {
 public:
  /// `in` and `out` hold `count` elements and may be the same memory. The exchange is exact.
  OneShotAllReduce(Transport& transport, SegmentExchange& exchange, std::int64_t count,
                   const void* in, void* out)
      : transport_(transport), exchange_(exchange), extent_{count, 0}, in_(in), out_(out) {}

  bool advance() override;
  Awaited awaited() const override;

 private:
  void post();

  Transport& transport_;
  SegmentExchange& exchange_;
  const Extent extent_;
  const void* in_;
  void* out_;
  bool posted_ = false;
  bool summed_ = false;
  ReceiveSet pieces_;
};

}  // namespace agoq
