// What the programs send, and what must come of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "agoqcomm/types.h"

namespace agoq::bench::osu {

/// Memory for `count` elements of the type.
class Buffer {
 public:
  Buffer(DataType type, std::int64_t count)
      : type_(type), bytes_(static_cast<std::size_t>(count) * size_of(type)) {}

  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }
  void* at(std::int64_t index) { return bytes_.data() + offset(index); }
  std::int64_t count() const { return static_cast<std::int64_t>(bytes_.size() / size_of(type_)); }
  DataType type() const { return type_; }

  double load(std::int64_t index) const;
  void store(std::int64_t index, double value);
  /// Writes the elements of rank `rank`: whole numbers of at most 8, whose sums over 15 ranks every
  /// type holds exactly.
  void fill(int rank);
  void clear();

 private:
  std::size_t offset(std::int64_t index) const {
    return static_cast<std::size_t>(index) * size_of(type_);
  }

  DataType type_;
  std::vector<std::byte> bytes_;
};

/// What fill(rank) writes as element `index`.
double value_of(int rank, std::int64_t index);
/// The sum of them over the ranks.
double sum_of(int ranks, std::int64_t index);

/// Whether the elements are `expected`: exactly, or where they were quantized within 1 % of the L2
/// norm, which the numeric contract keeps for any number of ranks.
bool is_right(const Buffer& buffer, const std::function<double(std::int64_t index)>& expected,
              bool quantized);

}  // namespace agoq::bench::osu
