// What the flat algorithms share: one chunk a rank, and every rank sends to every other.
#pragma once

#include <utility>

#include "collective/peers.h"
#include "collective/step_window.h"

namespace agoq {

/// Not thread-safe.
class FlatWindow : public StepWindow {
 protected:
  // A step takes at most one send buffer for each peer's piece and one for the own result.
  FlatWindow(Transport& transport, SegmentExchange& exchange, ChunkPlan plan)
      : StepWindow(transport, exchange, std::move(plan), peers_of(transport),
                   exchange.uses_send_buffers() ? transport.size() : 0) {}

  /// Whether segment `step` of a rank's chunk travels. In step 0 an empty one does, too: its
  /// message carries the label.
  bool travels(int rank, std::int64_t step) const {
    return step == 0 || plan_.segment(rank, step).count > 0;
  }
};

}  // namespace agoq
