#include "transport/shm/arena.h"

#include <algorithm>
#include <iterator>

namespace agoq {
namespace {

// Pages: neighbours never share one, and first fit finds a hole quickly.
constexpr std::size_t kUnit = 4096;

std::size_t rounded(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + kUnit - 1) / kUnit * kUnit;
}

}  // namespace

Arena::Arena(std::shared_ptr<Segment> segment)
    : segment_(std::move(segment)), slots_(kBufferSlots) {
  free_[0] = segment_->buffer_bytes();
  for (std::uint32_t slot = kBufferSlots; slot-- > 0;) free_slots_.push_back(slot);
}

std::optional<Arena::Slot> Arena::take(std::size_t bytes) {
  // Slots come back in about the order they went; memory that was just read is warm, so it is used
  // again before any that has never been touched.
  reclaim(false);
  auto slot = take_free(rounded(bytes));
  if (!slot) {
    reclaim(true);
    slot = take_free(rounded(bytes));
  }
  return slot;
}

std::optional<Arena::Slot> Arena::take_free(std::size_t bytes) {
  if (free_slots_.empty()) return std::nullopt;
  const auto found = std::find_if(free_.begin(), free_.end(),
                                  [&](const auto& stretch) { return stretch.second >= bytes; });
  if (found == free_.end()) return std::nullopt;
  const auto [offset, available] = *found;
  free_.erase(found);
  if (available > bytes) free_[offset + bytes] = available - bytes;
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[slot] = {offset, bytes};
  used_.push_back(slot);
  segment_->slot(slot).users.store(1, std::memory_order_relaxed);
  return Slot{slot, segment_->data() + offset, bytes};
}

void Arena::reclaim(bool all) {
  const auto is_unused = [this](std::uint32_t slot) {
    // The readers' last look at the data comes before their leaving.
    if (segment_->slot(slot).users.load(std::memory_order_acquire) != 0) return false;
    free_stretch(slots_[slot]);
    free_slots_.push_back(slot);
    return true;
  };
  while (!used_.empty() && is_unused(used_.front())) used_.pop_front();
  if (all) std::erase_if(used_, is_unused);
}

void Arena::free_stretch(Stretch stretch) {
  const auto next = free_.lower_bound(stretch.offset);
  if (next != free_.end() && stretch.offset + stretch.bytes == next->first) {
    stretch.bytes += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(stretch.offset);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == stretch.offset) {
      before->second += stretch.bytes;
      return;
    }
  }
  free_[stretch.offset] = stretch.bytes;
}

SendBuffer ArenaSendMemory::acquire(std::size_t bytes) {
  if (const auto slot = arena_->take(bytes)) {
    return {slot->data, bytes, slot->index + kFirstSlotHandle};
  }
  return heap_.acquire(bytes);
}

void ArenaSendMemory::recycle(const SendBuffer& buffer) {
  const std::uint32_t slot = slot_of(buffer.handle);
  slot != kNoSlot ? arena_->drop_user(slot) : heap_.recycle(buffer);
}

int ArenaSendMemory::limit(std::size_t bytes) const {
  // Where readers of earlier messages leave no room, as many fit into private memory.
  const std::size_t fitting = std::min<std::size_t>(arena_->bytes() / rounded(bytes), kBufferSlots);
  const int private_limit = heap_.limit(bytes);
  return fitting == 0 ? private_limit : std::min(static_cast<int>(fitting), private_limit);
}

}  // namespace agoq
