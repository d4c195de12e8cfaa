// The memory that ranks share: how it is divided, and that a peer's nonsense harms nobody.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstring>
#include <random>

#include "agoqcomm/error.h"
#include "link_sink.h"
#include "transport/shm/arena.h"
#include "transport/shm/segment.h"
#include "transport/shm/shm_link.h"

namespace agoq::test {
namespace {

constexpr std::size_t kBytes = 1 << 20;

TEST(Segment, APeerSeesWhatTheOwnerWrites) {
  const auto own = Segment::create(3, kBytes);
  const UniqueFd fd(::fcntl(own->fd(), F_DUPFD_CLOEXEC, 0));
  const auto theirs = Segment::attach(fd, 3);
  ASSERT_EQ(theirs->data_bytes(), own->data_bytes());
  ASSERT_GE(own->data_bytes(), kBytes);
  std::memset(own->data(), 42, own->data_bytes());
  EXPECT_EQ(theirs->data()[own->data_bytes() - 1], std::byte{42});
  own->ring(2).tail.store(7);
  EXPECT_EQ(theirs->ring(2).tail.load(), 7u);
  theirs->slot(own->slots() - 1).users.store(9);
  EXPECT_EQ(own->slot(own->slots() - 1).users.load(), 9u);
}

void expect_unsupported(const UniqueFd& fd, int ranks) {
  try {
    Segment::attach(fd, ranks);
    ADD_FAILURE() << "was attached";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
  }
}

TEST(Segment, WhatIsNoSegmentIsRefused) {
  expect_unsupported(UniqueFd(), 2);
  expect_unsupported(UniqueFd(::memfd_create("other", MFD_CLOEXEC)), 2);
  const UniqueFd unsealed(::memfd_create("other", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.get(), 64 << 20), 0);
  expect_unsupported(unsealed, 2);
  const auto own = Segment::create(3, kBytes);
  expect_unsupported(UniqueFd(::fcntl(own->fd(), F_DUPFD_CLOEXEC, 0)), 2);
}

TEST(Segment, MoreMemoryThanThereIsIsRefusedAndNotTaken) {
  try {
    Segment::create(2, std::size_t{1} << 50);
    FAIL() << "a pebibyte was granted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
  }
}

TEST(Segment, CopySlotsOverlapNeitherEachOtherNorSendBuffers) {
  for (const int ranks : {2, 5, 64}) {
    const auto own = Segment::create(ranks, kBytes);
    std::byte* end = own->data() + own->buffer_bytes();
    EXPECT_GE(own->buffer_bytes(), std::size_t{64} << 10);
    for (int reader = 0; reader < ranks; ++reader) {
      for (std::uint32_t number = 0; number < kCopySlots; ++number) {
        EXPECT_EQ(own->copy_data(reader, number), end);
        end += own->copy_bytes();
        EXPECT_LT(own->copy_slot(reader, number), own->slots());
      }
    }
    EXPECT_EQ(end, own->data() + own->data_bytes());
  }
}

TEST(Arena, SlotsNeverOverlapAndAllComeBack) {
  Arena arena(Segment::create(2, kBytes));
  std::mt19937 random(1);
  struct Held {
    Arena::Slot slot;
    std::byte mark;
  };
  std::vector<Held> held;
  for (int round = 0; round < 5000; ++round) {
    const auto slot = arena.take(random() % 100000);
    if (slot) {
      const std::byte mark{static_cast<unsigned char>(random())};
      std::memset(slot->data, static_cast<int>(mark), slot->bytes);
      held.push_back({*slot, mark});
    }
    if (!slot || random() % 2 == 0) {
      ASSERT_FALSE(held.empty());
      const std::size_t index = random() % held.size();
      const Held given = held[index];
      for (std::size_t i = 0; i < given.slot.bytes; i += 509) {
        ASSERT_EQ(given.slot.data[i], given.mark);
      }
      arena.drop_user(given.slot.index);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }
  for (const Held& one : held) arena.drop_user(one.slot.index);
  const auto whole = arena.take(arena.bytes());
  EXPECT_TRUE(whole) << "the stretches have not grown together again";
}

TEST(Arena, ASlotIsTakenUntilItsLastUserHasLeft) {
  Arena arena(Segment::create(2, kBytes));
  const auto slot = arena.take(arena.bytes());
  ASSERT_TRUE(slot);
  arena.add_user(slot->index);
  arena.drop_user(slot->index);
  EXPECT_FALSE(arena.take(1));
  arena.drop_user(slot->index);
  EXPECT_TRUE(arena.take(1));
}

TEST(Arena, SendBuffersGoToPrivateMemoryWhileItIsFull) {
  const auto arena = std::make_shared<Arena>(Segment::create(2, kBytes));
  ArenaSendMemory memory(arena, 8 * kBytes);
  const SendBuffer shared = memory.acquire(arena->bytes());
  const SendBuffer private_one = memory.acquire(1000);
  EXPECT_NE(ArenaSendMemory::slot_of(shared.handle), kNoSlot);
  EXPECT_EQ(ArenaSendMemory::slot_of(private_one.handle), kNoSlot);
  memory.recycle(shared);
  memory.recycle(private_one);
  EXPECT_NE(ArenaSendMemory::slot_of(memory.acquire(1000).handle), kNoSlot);
}

/// Writes one descriptor as a hostile peer could, and returns the end that the link came to.
std::optional<LinkEnd> end_after(const Descriptor& descriptor, std::uint32_t tail = 1) {
  int sockets[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets), 0);
  const UniqueFd other(sockets[1]);
  const auto own = std::make_shared<Arena>(Segment::create(2, kBytes));
  const auto theirs = Segment::create(2, kBytes);
  ShmLink link({1, 0, 1, own, theirs, UniqueFd(sockets[0]), "a test"});
  theirs->ring(0).entries[0].descriptor = descriptor;
  theirs->ring(0).tail.store(tail);
  Sink sink;
  link.progress(sink);
  return link.end();
}

Descriptor message(std::uint64_t bytes, std::uint64_t offset, std::uint64_t data,
                   std::uint64_t piece_bytes, std::uint32_t slot) {
  Descriptor descriptor{Descriptor::Kind::kMessage, 0, {}};
  descriptor.piece = {1, bytes, offset, data, piece_bytes, slot};
  return descriptor;
}

TEST(ShmLink, ASoundDescriptorIsTaken) {
  EXPECT_FALSE(end_after(message(100, 0, 0, 100, 0)));
  EXPECT_FALSE(end_after(message(0, 0, 0, 0, kNoSlot)));
}

TEST(ShmLink, ADescriptorThatLeadsOutOfTheSegmentEndsTheLink) {
  const std::uint64_t huge = ~std::uint64_t{0};
  const Descriptor wrong[] = {
      message(100, 0, kBytes * 2, 100, 0),                     // Data behind the end,
      message(100, 0, huge - 50, 100, 0),                      // so far that the sum wraps;
      message(huge, 0, 0, huge, 0),                            // a piece larger than the segment;
      message(100, 50, 0, 50, 0),                              // a second piece without a first;
      message(100, 0, 0, 200, 0),                              // a piece larger than its message;
      message(100, 0, 0, 100, kBufferSlots + 2 * kCopySlots),  // a slot that there is not;
      message(100, 0, 0, 0, kNoSlot),                          // a piece of nothing.
      Descriptor{static_cast<Descriptor::Kind>(77), 0, {}},
  };
  for (const Descriptor& descriptor : wrong) {
    const auto end = end_after(descriptor);
    ASSERT_TRUE(end);
    EXPECT_FALSE(end->goodbye);
  }
}

TEST(ShmLink, AFarewellNamesTheCulprit) {
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets), 0);
  const auto first = Segment::create(2, kBytes);
  const auto second = Segment::create(2, kBytes);
  ShmLink a({1, 0, 1, std::make_shared<Arena>(first), second, UniqueFd(sockets[0]), "a test"});
  ShmLink b({0, 1, 0, std::make_shared<Arena>(second), first, UniqueFd(sockets[1]), "a test"});
  a.leave({true, 7}, Clock::now());
  Sink sink;
  b.polled(POLLIN);
  b.progress(sink);
  ASSERT_TRUE(b.end());
  EXPECT_FALSE(b.end()->goodbye);
  EXPECT_EQ(b.end()->culprit, 7);
}

TEST(ShmLink, ARingThatIsOverrunEndsTheLink) {
  EXPECT_TRUE(end_after(message(100, 0, 0, 100, 0), kRingEntries + 1));
}

}  // namespace
}  // namespace agoq::test
