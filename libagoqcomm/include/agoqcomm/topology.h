// Topology: which ranks of a group share a node.
//
// A node is what slow links lie between: a host, as a rule. Nodes are numbered in the order of
// their lowest rank, and so are the ranks within a node.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agoqcomm/export.h"

namespace agoq {

/// Value type; copy freely. Every rank of a group must hold an equal one.
class AGOQ_API Topology {
 public:
  /// All of `size` ranks on one node.
  static Topology one_node(int size);
  /// names[r] says where rank r is; ranks of equal names share a node.
  static Topology from_names(std::span<const std::string> names);
  /// The same by numbers, of any values. Throws Error(kInvalidArgument) for no ranks at all.
  explicit Topology(std::span<const int> node_of_rank);

  int size() const { return static_cast<int>(places_.size()); }
  int nodes() const { return static_cast<int>(ranks_.size()); }
  int node_of(int rank) const { return places_[static_cast<std::size_t>(rank)].node; }
  /// How many lower ranks share the rank's node.
  int local_rank(int rank) const { return places_[static_cast<std::size_t>(rank)].local_rank; }
  /// Ranks of a node, in ascending order.
  const std::vector<int>& ranks_of(int node) const {
    return ranks_[static_cast<std::size_t>(node)];
  }

  /// Whether there is anything to gain from two levels: several nodes, and several ranks on one.
  bool is_two_level() const { return nodes() > 1 && nodes() < size(); }
  /// For people: "2 nodes of 4 ranks", "3 nodes of 1, 2 and 3 ranks".
  std::string describe() const;

  friend bool operator==(const Topology& a, const Topology& b) { return a.ranks_ == b.ranks_; }

 private:
  struct Place {
    int node;
    int local_rank;
  };

  std::vector<Place> places_;            // By rank.
  std::vector<std::vector<int>> ranks_;  // By node.
};

/// Equal for two processes exactly if they are to count as one node: what AGOQ_NODE_ID holds, or
/// else the host, which is one kernel and one network namespace.
AGOQ_API std::string node_identity();

}  // namespace agoq
