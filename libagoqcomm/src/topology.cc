#include "agoqcomm/topology.h"

#include <map>

#include "agoqcomm/error.h"

namespace agoq {
namespace {

/// A number for each name, in the order in which the names first come.
template <typename Name>
std::vector<int> numbered(std::span<const Name> names) {
  std::map<Name, int> numbers;
  std::vector<int> result;
  for (const Name& name : names) {
    result.push_back(numbers.emplace(name, static_cast<int>(numbers.size())).first->second);
  }
  return result;
}

}  // namespace

Topology::Topology(std::span<const int> node_of_rank) {
  if (node_of_rank.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "Topology: there are no ranks; state a node for each rank of the group");
  }
  for (const int node : numbered(node_of_rank)) {
    if (node == nodes()) ranks_.emplace_back();
    std::vector<int>& neighbours = ranks_[static_cast<std::size_t>(node)];
    neighbours.push_back(size());
    places_.push_back({node, static_cast<int>(neighbours.size()) - 1});
  }
}

Topology Topology::one_node(int size) {
  return Topology(std::vector<int>(static_cast<std::size_t>(size < 0 ? 0 : size)));
}

Topology Topology::from_names(std::span<const std::string> names) {
  return Topology(numbered(names));
}

std::string Topology::describe() const {
  const auto count = [](std::size_t n, const std::string& what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  bool even = true;
  for (const std::vector<int>& ranks : ranks_) even &= ranks.size() == ranks_[0].size();
  std::string text = count(ranks_.size(), "node") + " of ";
  if (even) return text + count(ranks_[0].size(), "rank");
  for (std::size_t node = 0; node < ranks_.size(); ++node) {
    if (node > 0) text += node + 1 == ranks_.size() ? " and " : ", ";
    text += std::to_string(ranks_[node].size());
  }
  return text + " ranks";
}

}  // namespace agoq
