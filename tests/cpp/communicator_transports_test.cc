// The collectives over every transport: the bits of the result are the same, and a rank that dies
// is named with the operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "agoqcomm/communicator.h"
#include "transport_group.h"

namespace agoq::test {
namespace {

using Bytes = std::vector<std::byte>;

Options options_of_tests() {
  Options options;
  options.min_numel = 1;
  options.quantize_all_gather = true;
  options.segment_numel = 8192;
  options.timeout = 20s;
  return options;
}

std::vector<float> values_of(int rank, std::int64_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

Bytes bytes_of(const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Runs the collectives one after another and returns all that they gave, as bytes.
Bytes run_collectives(Communicator& communicator) {
  Bytes all;
  const auto keep = [&](const std::vector<float>& values) {
    const Bytes bytes = bytes_of(values);
    all.insert(all.end(), bytes.begin(), bytes.end());
  };
  const int size = communicator.size();
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{100003}}) {
    std::vector<float> values = values_of(communicator.rank(), count);
    communicator.all_reduce(values.data(), values.data(), count, DataType::kFloat32,
                            ReduceOp::kSum);
    keep(values);
    values = values_of(communicator.rank(), count);
    communicator.all_reduce(values.data(), values.data(), count, DataType::kFloat32,
                            ReduceOp::kMax);
    keep(values);

    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size), count);
    values = values_of(communicator.rank(), count * size);
    std::vector<const void*> in;
    for (int rank = 0; rank < size; ++rank) in.push_back(values.data() + rank * count);
    std::vector<float> chunk(static_cast<std::size_t>(count));
    communicator.reduce_scatter(in, counts, chunk.data(), DataType::kFloat32, ReduceOp::kAvg);
    keep(chunk);

    std::vector<float> gathered(static_cast<std::size_t>(count * size));
    std::vector<void*> out;
    for (int rank = 0; rank < size; ++rank) out.push_back(gathered.data() + rank * count);
    communicator.all_gather(chunk.data(), out, counts, DataType::kFloat32);
    keep(gathered);
  }
  return all;
}

/// A run of random calls, the same on every rank: sizes, types, reductions, in place or not.
Bytes run_random_calls(Communicator& communicator) {
  constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat32, DataType::kBfloat16,
                                 DataType::kFloat16, DataType::kFloat64, DataType::kInt32,
                                 DataType::kUint8};
  constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kMax};
  const std::size_t size = static_cast<std::size_t>(communicator.size());
  std::mt19937_64 plan(7);
  std::mt19937_64 values(static_cast<std::uint64_t>(communicator.rank()) + 1);
  Bytes all;
  for (int call = 0; call < 300; ++call) {
    const DataType type = kTypes[plan() % std::size(kTypes)];
    const ReduceOp op = kOps[plan() % std::size(kOps)];
    const std::int64_t count =
        static_cast<std::int64_t>(plan() % (std::uint64_t{1} << (plan() % 17)));
    const std::size_t bytes = static_cast<std::size_t>(count) * size_of(type);
    // Bytes below 64 are small finite numbers in every type here.
    Bytes in(bytes * size);
    for (std::byte& byte : in) byte = std::byte(values() % 64);
    Bytes out(bytes * size);
    const std::vector<std::int64_t> counts(size, count);
    std::vector<const void*> chunks_in;
    std::vector<void*> chunks_out;
    for (std::size_t rank = 0; rank < size; ++rank) {
      chunks_in.push_back(in.data() + rank * bytes);
      chunks_out.push_back(out.data() + rank * bytes);
    }
    const int root = static_cast<int>(plan() % size);
    switch (plan() % 8) {
      case 0:
        communicator.all_reduce(in.data(), out.data(), count, type, op);
        break;
      case 1:
        communicator.reduce_scatter(chunks_in, counts, out.data(), type, op);
        break;
      case 2:
        communicator.all_gather(in.data(), chunks_out, counts, type);
        break;
      case 3:
        communicator.broadcast(in.data(), count, type, root);
        std::copy_n(in.data(), bytes, out.data());
        break;
      case 4:
        communicator.reduce(in.data(), out.data(), count, type, op, root);
        break;
      case 5:
        communicator.gather(in.data(), chunks_out, counts, type, root);
        break;
      case 6:
        communicator.scatter(chunks_in, counts, out.data(), type, root);
        break;
      default:
        communicator.all_to_all(chunks_in, counts, chunks_out, counts, type);
    }
    all.insert(all.end(), out.begin(), out.end());
  }
  return all;
}

std::vector<Bytes> results_over(Kind kind, int size,
                                const std::function<Bytes(Communicator&)>& calls) {
  auto group = make_group(kind, size);
  std::vector<Bytes> results(group.size());
  run_threads(size, [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    Communicator communicator(std::move(group[index]), options_of_tests());
    results[index] = calls(communicator);
  });
  return results;
}

class CommunicatorOver : public testing::TestWithParam<Kind> {};

TEST_P(CommunicatorOver, GivesTheBitsOfInproc) {
  for (const int size : {2, 3, 5}) {
    EXPECT_EQ(results_over(GetParam(), size, run_collectives),
              results_over(Kind::kInproc, size, run_collectives))
        << size;
  }
}

TEST_P(CommunicatorOver, GivesTheBitsOfInprocInARandomRun) {
  EXPECT_EQ(results_over(GetParam(), 3, run_random_calls),
            results_over(Kind::kInproc, 3, run_random_calls));
}

TEST_P(CommunicatorOver, NamesTheRankThatDiedAndTheOperation) {
  const std::uint16_t port = free_port();
  Processes processes(3, [kind = GetParam(), port](int rank) {
    auto store = make_tcp_store("127.0.0.1", port, rank, 3, kPatience);
    Communicator communicator(make_transport(kind, *store, rank, 3), options_of_tests());
    store.reset();
    std::vector<float> values(1 << 20, 1.0f);
    const auto all_reduce = [&] {
      communicator.all_reduce(values.data(), values.data(), 1 << 20, DataType::kFloat32,
                              ReduceOp::kSum);
    };
    all_reduce();
    if (rank == 1) {
      std::thread([] {
        std::this_thread::sleep_for(20ms);
        ::kill(::getpid(), SIGKILL);
      }).detach();
    }
    try {
      for (int i = 0; i < 100000; ++i) all_reduce();
    } catch (const Error& error) {
      const std::string what = error.what();
      if (error.code() == ErrorCode::kPeerFailed && error.peer() == 1 &&
          what.find("rank 1") != std::string::npos &&
          what.find("all_reduce") != std::string::npos) {
        return;
      }
      throw std::runtime_error("another error came: " + what);
    }
    throw std::runtime_error("no error came");
  });
  EXPECT_TRUE(WIFSIGNALED(processes.wait(1)));
  for (const int rank : {0, 2}) EXPECT_EQ(processes.wait(rank), 0) << rank;
}

INSTANTIATE_TEST_SUITE_P(All, CommunicatorOver,
                         testing::Values(Kind::kTcp, Kind::kShm, Kind::kAuto, Kind::kTwoHosts),
                         [](const auto& info) { return to_string(info.param); });

}  // namespace
}  // namespace agoq::test
