// Records addressed by small integers that are never valid twice.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace agoq {

/// Not thread-safe. An id is (generation << 32 | index): one that was erased finds nothing, even
/// when its place has been taken again. References stay valid until the record is erased.
template <typename Record>
class IdTable {
 public:
  std::uint64_t add(Record record) {
    std::uint32_t index;
    if (free_.empty()) {
      index = static_cast<std::uint32_t>(places_.size());
      places_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    Place& place = places_[index];
    place.record = std::move(record);
    place.used = true;
    return static_cast<std::uint64_t>(place.generation) << 32 | index;
  }

  /// Null for an id that is not in the table.
  Record* find(std::uint64_t id) {
    const std::uint32_t index = static_cast<std::uint32_t>(id);
    if (index >= places_.size()) return nullptr;
    Place& place = places_[index];
    return place.used && place.generation == id >> 32 ? &place.record : nullptr;
  }

  void erase(std::uint64_t id) {
    if (find(id) == nullptr) return;
    const std::uint32_t index = static_cast<std::uint32_t>(id);
    Place& place = places_[index];
    place.record = Record{};
    place.used = false;
    ++place.generation;
    free_.push_back(index);
  }

  template <typename Function>
  void for_each(Function&& function) const {
    for (const Place& place : places_) {
      if (place.used) function(place.record);
    }
  }

 private:
  struct Place {
    Record record{};
    std::uint32_t generation = 1;
    bool used = false;
  };

  std::deque<Place> places_;
  std::vector<std::uint32_t> free_;
};

}  // namespace agoq
