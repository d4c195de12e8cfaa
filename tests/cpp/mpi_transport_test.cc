// What is the mpi transport's own: which communicators it takes, and what it leaves behind.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "agoqcomm/communicator.h"
#include "agoqcomm/inproc.h"
#include "mpi_ranks.h"

namespace agoq::test {
namespace {

Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  throw std::logic_error("no error came");
}

TEST(MpiTransport, TakesOnlyIntracommunicators) {
  const Error none = error_of([] { make_mpi_transport(MPI_Comm_c2f(MPI_COMM_NULL)); });
  EXPECT_EQ(none.code(), ErrorCode::kInvalidArgument) << none.what();

  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 1, &between);
  const Error two_groups = error_of([&] { make_mpi_transport(MPI_Comm_c2f(between)); });
  EXPECT_EQ(two_groups.code(), ErrorCode::kInvalidArgument) << two_groups.what();
  MPI_Comm_free(&between);
  MPI_Comm_free(&half);
}

TEST(MpiTransport, AMissingRankIsATimeout) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm ranks = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &ranks);
  TransportConfig config;
  config.timeout = 300ms;
  if (rank == 0) {
    const auto start = Clock::now();
    const Error error = error_of([&] { make_mpi_transport(MPI_Comm_c2f(ranks), config); });
    EXPECT_EQ(error.code(), ErrorCode::kTimeout) << error.what();
    EXPECT_LT(Clock::now() - start, 5s);
  }
  // `ranks` stays: rank 0 has begun what no other rank will.
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(MpiTransport, OutlivesTheCallersCommunicator) {
  MPI_Comm ranks = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &ranks);
  const auto transport = make_mpi_transport(MPI_Comm_c2f(ranks));
  MPI_Comm_free(&ranks);
  transport->begin_call(label_of(1));
  const int rank = transport->rank();
  const Ticket sent = transport->post_send(&rank, sizeof rank, peers_of(*transport), 1);
  for (const int peer : peers_of(*transport)) {
    int got = -1;
    complete(*transport, transport->post_receive(peer, 1, &got, sizeof got));
    EXPECT_EQ(got, peer);
  }
  complete(*transport, sent);
}

// More groups than MPICH has numbers for communicators, some of them left with messages under way:
// nothing of an earlier group may reach a later one.
TEST(MpiTransport, ManyGroupsOneAfterAnother) {
  if (ranks_at_hand() > 2) GTEST_SKIP() << "2 ranks show it, and more would outnumber small hosts";
  const auto data = pattern(300000, 3);
  for (int round = 0; round < 2100; ++round) {
    const auto transport = make_mpi_transport(MPI_Comm_c2f(MPI_COMM_WORLD));
    const int peer = 1 - transport->rank();
    transport->begin_call(label_of(round));
    int got = -1;
    const Ticket receive = transport->post_receive(peer, 1, &got, sizeof got);
    const Ticket sent = transport->post_send(&round, sizeof round, std::span(&peer, 1), 1);
    if (round % 100 == 0) transport->post_send(data.data(), data.size(), std::span(&peer, 1), 2);
    complete(*transport, {receive, sent});
    ASSERT_EQ(got, round);
  }
}

// A rank that is killed is the launcher's to see to, which ends the job; one that stops is ours.
TEST(MpiTransport, AStoppedRankIsNamedInTimeAndTheNextGroupWorks) {
  const auto sum = [](Communicator& communicator) {
    std::vector<float> values(1 << 20, 1.0f);
    communicator.all_reduce(values.data(), values.data(), std::ssize(values), DataType::kFloat32,
                            ReduceOp::kSum);
    return values[12345];
  };
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<int> pids(static_cast<std::size_t>(size));
  pids[static_cast<std::size_t>(rank)] = ::getpid();
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_INT, pids.data(), 1, MPI_INT, MPI_COMM_WORLD);
  Options options;
  options.timeout = 2s;
  {
    Communicator failing(make_mpi_transport(MPI_Comm_c2f(MPI_COMM_WORLD)), options);
    sum(failing);
    const auto start = Clock::now();
    if (rank == 1) ::raise(SIGSTOP);
    const Error error = error_of([&] { sum(failing); });
    const std::string what = error.what();
    if (rank != 1) {
      EXPECT_LT(Clock::now() - start, 8s);
      EXPECT_TRUE(error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kPeerFailed);
      for (const char* const word : {"all_reduce", "rank ", "bytes"}) {
        EXPECT_NE(what.find(word), std::string::npos) << what;
      }
    }
    if (rank == 0) {
      EXPECT_NE(what.find("rank 1"), std::string::npos) << what;
      ::kill(pids[1], SIGCONT);
    }
  }
  options.timeout = 20s;
  Communicator next(make_mpi_transport(MPI_Comm_c2f(MPI_COMM_WORLD)), options);
  EXPECT_NEAR(sum(next), static_cast<float>(size), 0.05f * static_cast<float>(size));
}

std::vector<float> values_of(int rank) {
  std::vector<float> values(100003);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(0.001f * static_cast<float>(i) + static_cast<float>(rank));
  }
  return values;
}

std::vector<float> reduced(std::unique_ptr<Transport> transport) {
  Options options;
  options.segment_numel = 8192;
  Communicator communicator(std::move(transport), options);
  std::vector<float> values = values_of(communicator.rank());
  communicator.all_reduce(values.data(), values.data(), std::ssize(values), DataType::kFloat32,
                          ReduceOp::kAvg);
  EXPECT_EQ(of(communicator.stats(), Operation::kAllReduce).quantized_calls, 1);
  return values;
}

TEST(MpiTransport, GivesTheBitsOfInproc) {
  const std::vector<float> ours = reduced(make_mpi_transport(MPI_Comm_c2f(MPI_COMM_WORLD)));
  std::vector<std::vector<float>> theirs(static_cast<std::size_t>(ranks_at_hand()));
  auto group = make_inproc_group(ranks_at_hand());
  run_threads(ranks_at_hand(), [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    theirs[index] = reduced(std::move(group[index]));
  });
  EXPECT_EQ(std::memcmp(ours.data(), theirs[0].data(), ours.size() * sizeof(float)), 0);
}

}  // namespace
}  // namespace agoq::test
