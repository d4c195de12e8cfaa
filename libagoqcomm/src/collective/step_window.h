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
// Sends that answer receives of the same step (a sum, a result passed on) change nothing: in m they
// are only as far apart as the algorithm is deep, and their send buffers were reckoned with when m
// opened.
//
// Why the send buffers are bounded. A rank that has heard in step s from everyone to whom it sends
// knows that they have opened it, hence retired step s - window, hence read all that this rank sent
// in it.
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
  /// A sum that this rank makes.
  struct Sum {
    int chunk;
    ReceiveSet pieces;     ///< By rank.
    ReceiveSet node_sums;  ///< By node; of two levels only.
    bool taken = false;    ///< Whether it has been made.
  };
  struct Step {
    std::int64_t index;
    ReceiveSet labels;  ///< Messages without payload.
    std::vector<Sum> sums;
    ReceiveSet results;  ///< Others' segments.
  };

  /// `recipients` are all whom this rank ever sends a send buffer to, and `buffers_a_step` how many
  /// of them a step takes at most. Throws Error(kSystem) where the transport has no room for that.
  StepWindow(Transport& transport, SegmentExchange& exchange, ChunkPlan plan,
             std::vector<int> recipients, int buffers_a_step);

  /// Posts the receives of a step, then its sends.
  virtual void open(Step& step) = 0;
  /// Makes progress without waiting; true where there was some.
  virtual bool work(Step& step) = 0;

  /// Elements of segment `step` of a chunk, and where they are in the whole buffer.
  Extent extent(int chunk, std::int64_t step) const;
  /// Peers in the order of sending.
  const std::vector<int>& peers() const { return peers_; }
  int rank() const { return transport_.rank(); }

  Transport& transport_;
  SegmentExchange& exchange_;
  const ChunkPlan plan_;

 private:
  bool retire();
  bool may_open();
  bool heard_from_recipients(const Step& step) const;

  const std::vector<int> peers_;
  const std::vector<int> recipients_;
  const int buffers_a_step_;
  int send_buffer_limit_ = 0;
  std::int64_t window_;
  std::deque<Step> steps_;      // The open ones.
  std::int64_t opened_ = 0;     // Steps opened so far.
  std::int64_t retired_ = 0;    // Steps retired so far.
  std::int64_t delivered_ = 0;  // Steps whose sends have all been read, as far as is known.
};

}  // namespace agoq
