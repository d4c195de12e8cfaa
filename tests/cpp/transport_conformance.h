// The suite that every transport passes, and what its tests share. AGOQ_TEST_MPI compiles it for
// ranks that mpirun starts.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "transport_group.h"
#ifdef AGOQ_TEST_MPI
#include "mpi_ranks.h"
#else
#include "rank_threads.h"
#endif

namespace agoq::test {

/// Runs body on each rank of a new group, of as many ranks as there are if `size` is more.
inline void run_group(Kind kind, int size, const std::function<void(Transport&)>& body,
                      const TransportConfig& config = {}) {
  const auto of_member = [&](Member& member) { body(*member.transport); };
  run_members(kind, std::min(size, ranks_at_hand()), of_member, config);
}

class Conformance : public testing::TestWithParam<Kind> {
 protected:
  Kind kind() const { return GetParam(); }
};

inline std::uint64_t seed_of(int from, int to, std::size_t round) {
  return static_cast<std::uint64_t>(from) * 1'000'003 + static_cast<std::uint64_t>(to) * 10'007 +
         round;
}

/// Every rank sends `bytes` of its own to every other, from and into the callers' memory.
inline void exchange_caller_memory(Transport& transport, std::size_t bytes, std::size_t round,
                                   Tag tag) {
  std::vector<Ticket> tickets;
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::vector<std::byte>> got;
  const auto peers = peers_of(transport);
  for (const int peer : peers) {
    got.emplace_back(bytes);
    tickets.push_back(transport.post_receive(peer, tag, got.back().data(), bytes));
  }
  for (const int peer : peers) {
    sent.push_back(pattern(bytes, seed_of(transport.rank(), peer, round)));
    tickets.push_back(
        transport.post_send(sent.back().data(), bytes, std::span<const int>(&peer, 1), tag));
  }
  complete(transport, tickets);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    EXPECT_EQ(got[i], pattern(bytes, seed_of(peers[i], transport.rank(), round))) << bytes;
  }
  for (const Ticket ticket : tickets) transport.release(ticket);
}

/// The same message from every rank to all others, through the transport's memory.
inline void exchange_send_buffers(Transport& transport, std::size_t bytes, std::size_t round,
                                  Tag tag) {
  const auto peers = peers_of(transport);
  SendBuffer buffer = transport.acquire(bytes);
  ASSERT_GE(buffer.bytes, bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data) % 64, 0u);
  const auto data = pattern(bytes, seed_of(transport.rank(), -1, round));
  if (bytes != 0) std::memcpy(buffer.data, data.data(), bytes);
  transport.post_send(buffer, peers, tag);
  std::vector<Ticket> tickets;
  for (const int peer : peers) tickets.push_back(transport.post_receive(peer, tag, bytes));
  complete(transport, tickets);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const std::byte* got = transport.received(tickets[i]);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got) % 64, 0u);
    const auto expected = pattern(bytes, seed_of(peers[i], -1, round));
    EXPECT_TRUE(bytes == 0 || std::memcmp(got, expected.data(), bytes) == 0) << bytes;
    transport.release(tickets[i]);
  }
  flush(transport);
}

#ifdef AGOQ_TEST_MPI
inline constexpr Kind kAllKinds[] = {Kind::kMpi};
#else
inline constexpr Kind kAllKinds[] = {Kind::kInproc, Kind::kTcp, Kind::kShm, Kind::kAuto,
                                     Kind::kTwoHosts};
#endif

inline std::string kind_of(const testing::TestParamInfo<Kind>& info) {
  return to_string(info.param);
}

}  // namespace agoq::test
