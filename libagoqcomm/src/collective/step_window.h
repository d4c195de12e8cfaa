// The frame of every segmented algorithm: opens steps in order, keeps a window of them going, and
// retires them in order.
//
// Why no set of ranks can deadlock. A step posts all its receives when it opens, before its first
// send, and step s + window opens only once steps 0..s are retired. Let m be the lowest step that
// any rank has not retired. Every rank has opened m: its window allows it, and the send buffers it
// may have to wait for are those of steps that all ranks have retired, so they come back. Hence all
// of m's receives are posted, all its sends are under way, and m ends everywhere.
//
// This needs no buffering in the transport: on a link that delivers in order, a message for a step
// that its receiver has not opened stands behind every message of the steps that its receiver
// waits for.
//
// Why the send buffers are bounded. A rank that has heard from every peer in step s knows that they
// have opened it, hence retired step s - window, hence read all that this rank sent in it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "agoqcomm/transport.h"
#include "collective/chunk_plan.h"
#include "collective/collective.h"
#include "collective/receive_set.h"
#include "collective/segment_exchange.h"

namespace agoq {

/// Not thread-safe.
class StepWindow : public Collective {
 public:
  bool advance() final;
  Awaited awaited() const final;

 protected:
  struct Step {
    std::int64_t index;
    ReceiveSet pieces;         ///< To be summed into this rank's segment.
    bool pieces_taken = true;  ///< False while the step has a sum to make.
    ReceiveSet results;        ///< Others' segments.
  };

  /// Throws Error(kSystem) where the transport has no room for one step's messages.
  StepWindow(Transport& transport, SegmentExchange& exchange, ChunkPlan plan);

  /// Posts the receives of a step, then its sends.
  virtual void open(Step& step) = 0;
  /// Makes progress without waiting; true where there was some.
  virtual bool work(Step& step) = 0;
  /// Whether every peer sends to this rank in this step.
  virtual bool hears_from_all(std::int64_t step) const = 0;

  /// Elements of segment `step` of a rank's chunk, and where they are in the whole buffer.
  Extent extent(int rank, std::int64_t step) const;
  /// Whether segment `step` of a rank's chunk travels. In step 0 an empty one does, too: its
  /// message carries the label.
  bool travels(int rank, std::int64_t step) const {
    return step == 0 || plan_.segment(rank, step).count > 0;
  }
  /// Peers in the order of sending.
  const std::vector<int>& peers() const { return peers_; }
  int rank() const { return transport_.rank(); }

  Transport& transport_;
  SegmentExchange& exchange_;
  const ChunkPlan plan_;

 private:
  bool retire();
  bool may_open();

  const std::vector<int> peers_;
  std::int64_t window_;
  int send_buffer_limit_;       // 0: no step takes any.
  std::deque<Step> steps_;      // The open ones.
  std::int64_t opened_ = 0;     // Steps opened so far.
  std::int64_t retired_ = 0;    // Steps retired so far.
  std::int64_t delivered_ = 0;  // Steps whose sends have all been read, as far as is known.
};

}  // namespace agoq
