// Segment: the memory that one rank owns and its peers map. Its layout, and who writes what:
//
//   SegmentHeader                       owner, but for `resting`, which a waking peer clears
//   Ring of each rank of the mapping    owner writes descriptors and `tail`; the reader `head`
//   SlotState of each slot              how many still need the slot: the owner adds, readers take
//   data: SendBuffers | copies          owner, while the slot is its; readers read
//
// SendBuffers are of any size and may fill their part for as long as readers keep them. So that
// other messages still get through, copies of the owner's private memory have a part of their own,
// with a few slots of one size for each reader.
//
// A segment is a memfd: it has no name, so it goes with the last process that maps it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "agoqcomm/transport.h"
#include "transport/mesh/unique_fd.h"

namespace agoq {

inline constexpr std::uint32_t kNoSlot = 0xffffffff;
inline constexpr std::uint32_t kBufferSlots = 1024;
inline constexpr std::uint32_t kCopySlots = 8;  ///< For each reader.
inline constexpr std::uint32_t kRingEntries = 256;
/// What a ring carries: the label of a call, or a message or a piece of it.
struct Descriptor {
  enum class Kind : std::uint32_t { kCall = 1, kMessage = 2 };
  struct Piece {
    std::uint64_t tag;
    std::uint64_t message_bytes;
    std::uint64_t offset;  ///< Of the piece in the message.
    std::uint64_t data;    ///< Of its bytes in the segment.
    std::uint64_t bytes;
    std::uint32_t slot;  ///< kNoSlot for an empty message.
  };

  Kind kind;
  std::uint32_t call;
  union {
    Piece piece;
    Label label;
  };
};
static_assert(sizeof(Descriptor) <= 64);

// Every counter that two ranks touch has a cache line of its own. The orderings are sequential
// where the text says so: "publish, then look whether the peer rests" on one side meets "rest, then
// look for what was published" on the other, and one of the two must see the other.
struct Ring {
  alignas(64) std::atomic<std::uint32_t> tail;
  alignas(64) std::atomic<std::uint32_t> head;
  struct alignas(64) Entry {
    Descriptor descriptor;
  } entries[kRingEntries];
};

struct SlotState {
  alignas(64) std::atomic<std::uint32_t> users;
};

struct SegmentHeader {
  std::uint64_t bytes;
  std::uint32_t ranks;
  std::atomic<std::uint32_t> blamed;               ///< 1 + the rank that made the owner fail, or 0.
  alignas(64) std::atomic<std::uint32_t> resting;  ///< The owner sleeps: ring its doorbell.
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Not thread-safe; what lies in the memory is, as stated above.
class Segment {
 public:
  /// A new one for `ranks` ranks with `data_bytes` of data or the least that serves, all of it
  /// allocated now, so that no later write can fail. Throws Error(kUnsupported) where there is no
  /// memory for it.
  static std::shared_ptr<Segment> create(int ranks, std::size_t data_bytes);
  /// A peer's, which must be laid out for as many ranks and be sealed against shrinking. Throws
  /// Error(kUnsupported).
  static std::shared_ptr<Segment> attach(const UniqueFd& fd, int ranks);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  /// Of an own segment, until close_fd(): to pass to the peers.
  int fd() const { return fd_.get(); }
  void close_fd() { fd_.reset(); }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  /// The ring whose reader is the `index`-th rank.
  Ring& ring(int index) const;
  SlotState& slot(std::uint32_t slot) const;
  std::uint32_t slots() const;
  std::byte* data() const { return base_ + data_offset_; }
  std::size_t data_bytes() const { return bytes_ - data_offset_; }
  /// What of the data is for SendBuffers; it comes first.
  std::size_t buffer_bytes() const;
  /// The size of a copy slot: a larger message travels in pieces, and while one is read the next is
  /// written.
  std::size_t copy_bytes() const;
  /// The slot of the `number`-th copy for the `reader`-th rank, and where its bytes lie.
  std::uint32_t copy_slot(int reader, std::uint32_t number) const;
  std::byte* copy_data(int reader, std::uint32_t number) const;

 private:
  Segment(int fd, int ranks, std::size_t bytes);

  UniqueFd fd_;
  int ranks_;
  std::byte* base_ = nullptr;
  std::size_t bytes_;
  std::size_t data_offset_;
};

}  // namespace agoq
