// Broadcast of much: the root gives every rank a chunk, and the ranks pass theirs on to each other.
//
// The root sends 2(p-1)/p times the data, and the others up to (p-2)/p, where a flat broadcast has
// the root send it p-1 times. A segment is passed on as soon as it has come, so that the second hop
// costs a segment's time, not the data's. Step 0 carries a message between every two ranks, and
// with it the label.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "agoqcomm/topology.h"
#include "collective/flat_window.h"

namespace agoq {

/// Whether a broadcast of `bytes` is one. The same on all ranks, as its arguments are. Ranks that
/// share a memory have no link of the root's to spare: those of a process or of shm, and those of
/// auto if they are all on one node.
bool is_relayed(std::string_view transport, const Topology& topology, std::int64_t bytes);

/// Elements of a broadcast's messages, relayed or not, where a segment has `segment_numel`. Nothing
/// is computed while they travel, so that short broadcasts gain more from fewer messages than they
/// lose by less overlap.
std::int64_t broadcast_segment_numel(std::int64_t segment_numel, std::int64_t bytes);

/// Not thread-safe.
class RelayedBroadcast final : public FlatWindow {
 public:
  /// `data` holds plan.total() elements. The exchange is exact.
  RelayedBroadcast(Transport& transport, SegmentExchange& exchange, ChunkPlan plan, int root,
                   void* data);

 protected:
  void open(Step& step) override;
  bool work(Step& step) override;

 private:
  void open_on_root(Step& step);
  void open_on_others(Step& step);
  void expect(Step& step, int from, int chunk, Tag tag);
  void* at(Extent extent) const;

  const int root_;
  std::byte* const data_;
  std::vector<int> relayed_to_;  ///< The peers but for the root.
};

}  // namespace agoq
