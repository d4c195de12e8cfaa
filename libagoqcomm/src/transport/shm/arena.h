// Arena: hands out what of a rank's own segment is for SendBuffers.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "transport/mesh/send_memory.h"
#include "transport/shm/segment.h"

namespace agoq {

/// Not thread-safe. A slot is in use from take() until its users, of whom the taker is the first,
/// are gone; readers in other processes leave by themselves.
class Arena {
 public:
  struct Slot {
    std::uint32_t index = kNoSlot;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  explicit Arena(std::shared_ptr<Segment> segment);

  /// Nothing when no stretch of `bytes` is free at the moment.
  std::optional<Slot> take(std::size_t bytes);
  void add_user(std::uint32_t slot) { segment_->slot(slot).users.fetch_add(1); }
  void drop_user(std::uint32_t slot) { segment_->slot(slot).users.fetch_sub(1); }
  std::uint64_t offset_of(const std::byte* data) const {
    return static_cast<std::uint64_t>(data - segment_->data());
  }
  std::size_t bytes() const { return segment_->buffer_bytes(); }
  const Segment& segment() const { return *segment_; }

 private:
  struct Stretch {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };

  std::optional<Slot> take_free(std::size_t bytes);
  /// Frees the slots at the front of `used_` that nobody needs any more, or with `all` every such.
  void reclaim(bool all);
  void free_stretch(Stretch stretch);

  std::shared_ptr<Segment> segment_;
  std::map<std::size_t, std::size_t> free_;  ///< Offset to bytes; neighbours are merged.
  std::vector<Stretch> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::deque<std::uint32_t> used_;  ///< In the order of taking.
};

/// SendBuffers in the arena, or in private memory while the arena is full; what is private travels
/// by way of the segment's copy slots.
class ArenaSendMemory final : public SendMemory {
 public:
  ArenaSendMemory(std::shared_ptr<Arena> arena, std::size_t heap_bytes)
      : arena_(std::move(arena)), heap_(heap_bytes) {}

  SendBuffer acquire(std::size_t bytes) override;
  void recycle(const SendBuffer& buffer) override;
  int limit(std::size_t bytes) const override;

  /// The slot that a SendBuffer's handle stands for, or kNoSlot.
  static std::uint32_t slot_of(std::uint64_t handle) {
    return handle >= kFirstSlotHandle ? static_cast<std::uint32_t>(handle - kFirstSlotHandle)
                                      : kNoSlot;
  }

 private:
  // 0 is no SendBuffer's handle and 1 stands for private memory.
  static constexpr std::uint64_t kFirstSlotHandle = 2;

  std::shared_ptr<Arena> arena_;
  HeapSendMemory heap_;
};

}  // namespace agoq
