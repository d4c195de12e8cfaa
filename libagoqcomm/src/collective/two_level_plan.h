// Who adds up what, in two levels.
//
// Every chunk has an owner, as always. On the owner's node the others send it their pieces. On
// every other node one rank, the *collector*, gathers its neighbours' pieces, adds them up and
// sends the owner one sum. Results go back the same way: to the owner's neighbours and to the
// collectors, who pass them on. So what leaves a node does not grow with its ranks.
//
// Work is shared by position. Let an owner be number i of the g ranks of its node: its chunk is the
// stretch [i/g, (i+1)/g) of what the node owns. On a node of h ranks number j collects the stretch
// [j/h, (j+1)/h). Where all nodes have equally many ranks that is simply the rank of the same
// number. Otherwise a chunk is cut into *parts* at the boundaries of all nodes, so that a part has
// one collector on each. All parts move at the same time: segment s of each in step s.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "agoqcomm/topology.h"
#include "collective/chunk_plan.h"

namespace agoq {

/// Value type. Equal on all ranks of a call, since it follows from the topology and from what the
/// call label holds.
class TwoLevelPlan {
 public:
  /// For an all-reduce, which may choose its chunks: every node owns as many blocks as another,
  /// and shares them among its ranks.
  static TwoLevelPlan balanced(std::int64_t count, const Topology& topology, std::int64_t block,
                               std::int64_t segment_numel);
  /// Chunks as the caller states them.
  static TwoLevelPlan given(std::span<const std::int64_t> counts, const Topology& topology,
                            std::int64_t block, std::int64_t segment_numel);

  const Topology& topology() const { return topology_; }
  int parts() const { return static_cast<int>(places_.size()); }
  int owner(int part) const { return places_[part].owner; }
  /// Elements of the owner's chunk that lie before the part.
  std::int64_t offset_in_chunk(int part) const { return places_[part].offset; }
  /// The rank of a node that has to do with the part; the owner, on its own node.
  int collector(int part, int node) const;

  /// The parts as chunks: their elements, their segments, and where they are in the whole buffer.
  const ChunkPlan& segments() const { return segments_; }

 private:
  /// A part starts at number/of of what the owner's node owns.
  struct Fraction {
    std::int64_t number;
    std::int64_t of;
  };
  struct Place {
    int owner;
    Fraction start;
    std::int64_t offset;
  };

  TwoLevelPlan(const Topology& topology, std::vector<Place> places, ChunkPlan segments);
  static std::vector<Fraction> boundaries(const Topology& topology);

  Topology topology_;
  std::vector<Place> places_;
  ChunkPlan segments_;
};

}  // namespace agoq
