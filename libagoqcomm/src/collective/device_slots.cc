#include "collective/device_slots.h"

#include <algorithm>

namespace agoq {
namespace {

// Pieces leave out the rank itself.
std::size_t place(int rank, int peer) {
  return static_cast<std::size_t>(peer < rank ? peer : peer - 1);
}

}  // namespace

DeviceSlots::DeviceSlots(Operation operation, const ChunkPlan& plan, std::int64_t message_bytes,
                         std::byte* workspace)
    : workspace_(workspace) {
  const auto ranks = static_cast<std::size_t>(plan.ranks());
  pieces_ = operation == Operation::kAllGather ? 0 : ranks - 1;
  const std::size_t results = operation == Operation::kReduceScatter ? 0 : ranks;
  slots_ = 2 * pieces_ + results;
  const auto bytes = static_cast<std::size_t>(message_bytes);
  slot_bytes_ = (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  steps_ = static_cast<std::size_t>(std::min<std::int64_t>(plan.steps(), 2));
}

std::size_t DeviceSlots::bytes() const { return steps_ * slots_ * slot_bytes_; }

std::byte* DeviceSlots::sent_piece(int rank, int peer, std::int64_t step) const {
  return slot(step, place(rank, peer));
}

std::byte* DeviceSlots::received_piece(int rank, int peer, std::int64_t step) const {
  return slot(step, pieces_ + place(rank, peer));
}

std::byte* DeviceSlots::result(int owner, std::int64_t step) const {
  return slot(step, 2 * pieces_ + static_cast<std::size_t>(owner));
}

}  // namespace agoq
