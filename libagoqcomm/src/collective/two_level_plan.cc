#include "collective/two_level_plan.h"

#include <algorithm>
#include <set>
#include <utility>

namespace agoq {

TwoLevelPlan::TwoLevelPlan(const Topology& topology, std::vector<Place> places, ChunkPlan segments)
    : topology_(topology), places_(std::move(places)), segments_(std::move(segments)) {}

TwoLevelPlan TwoLevelPlan::balanced(std::int64_t count, const Topology& topology,
                                    std::int64_t block, std::int64_t segment_numel) {
  // Shares of `whole` that differ by one at most.
  const auto share = [](std::int64_t whole, int among, int number) {
    return whole / among + (number < whole % among);
  };
  const std::int64_t blocks = count / block + (count % block != 0);
  std::vector<std::int64_t> counts;
  std::int64_t left = count;
  for (int rank = 0; rank < topology.size(); ++rank) {
    const int node = topology.node_of(rank);
    const std::int64_t of_node = share(blocks, topology.nodes(), node);
    const auto neighbours = static_cast<int>(topology.ranks_of(node).size());
    const std::int64_t own = share(of_node, neighbours, topology.local_rank(rank));
    counts.push_back(std::min(own * block, left));
    left -= counts.back();
  }
  return given(counts, topology, block, segment_numel);
}

TwoLevelPlan TwoLevelPlan::given(std::span<const std::int64_t> counts, const Topology& topology,
                                 std::int64_t block, std::int64_t segment_numel) {
  const std::vector<Fraction> all_starts = boundaries(topology);
  std::vector<Place> places;
  std::vector<std::int64_t> part_counts;
  for (int owner = 0; owner < topology.size(); ++owner) {
    const std::int64_t count = counts[owner];
    const std::int64_t blocks = count / block + (count % block != 0);
    const auto neighbours = std::ssize(topology.ranks_of(topology.node_of(owner)));
    const std::size_t first = places.size();
    for (const Fraction& start : all_starts) {
      // Where in the chunk, in units of start.of: a whole chunk is start.of of them.
      const std::int64_t at = start.number * neighbours - topology.local_rank(owner) * start.of;
      if (at < 0 || at >= start.of) continue;
      // As blocks * at / start.of, without the overflow.
      const std::int64_t before = blocks / start.of * at + blocks % start.of * at / start.of;
      places.push_back({owner, start, std::min(before * block, count)});
    }
    for (std::size_t part = first; part < places.size(); ++part) {
      const std::int64_t end = part + 1 < places.size() ? places[part + 1].offset : count;
      part_counts.push_back(end - places[part].offset);
    }
  }
  return TwoLevelPlan(topology, std::move(places),
                      ChunkPlan::given(part_counts, block, segment_numel));
}

int TwoLevelPlan::collector(int part, int node) const {
  const Fraction& start = places_[part].start;
  const std::vector<int>& ranks = topology_.ranks_of(node);
  return ranks[start.number * std::ssize(ranks) / start.of];
}

std::vector<TwoLevelPlan::Fraction> TwoLevelPlan::boundaries(const Topology& topology) {
  const auto before = [](const Fraction& a, const Fraction& b) {
    return a.number * b.of < b.number * a.of;
  };
  std::set<std::int64_t> node_sizes;
  for (int node = 0; node < topology.nodes(); ++node) {
    node_sizes.insert(std::ssize(topology.ranks_of(node)));
  }
  // Equal fractions, such as 1/2 and 2/4, are one.
  std::set<Fraction, decltype(before)> starts(before);
  for (const std::int64_t ranks : node_sizes) {
    for (std::int64_t number = 0; number < ranks; ++number) starts.insert({number, ranks});
  }
  return {starts.begin(), starts.end()};
}

}  // namespace agoq
