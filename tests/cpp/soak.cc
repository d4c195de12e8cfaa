// soak CALLS SEED TRANSPORT...: that many random calls over each transport, shared out among four
// groups that run side by side, each result compared with the contract's, bit for bit. Exits with 1
// at the first that differs. Compiled for MPI it runs over the ranks that mpirun has started.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agoqcomm/communicator.h"
#include "soak_call.h"
#ifdef AGOQ_TEST_MPI
#include "mpi_ranks.h"
#else
#include "rank_threads.h"
#endif

namespace agoq::testing {
namespace {

using test::Kind;

/// What one group is like; the groups of a soak differ in all that a group may choose.
struct GroupPlan {
  int size;
  Options options;
};

std::vector<GroupPlan> group_plans(int ranks) {
  std::vector<GroupPlan> plans(4);
  for (GroupPlan& plan : plans) {
    plan.size = ranks;
    plan.options.timeout = std::chrono::minutes(2);
  }
  plans[0].options.min_numel = 0;
  plans[0].options.segment_numel = 4096;
  plans[1].size = std::max(2, ranks - 1);
  plans[1].options.min_numel = 0;
  plans[1].options.quantize_all_gather = true;
  plans[1].options.stochastic_rounding = true;
  plans[1].options.seed = 77;
  plans[1].options.format.block = 64;
  plans[2].size = 2;
  plans[2].options.min_numel = 3000;
  plans[2].options.segment_numel = 1024;
  plans[2].options.format.block = 256;
  plans[2].options.format.scale = ScaleType::kFloat32;
  plans[3].options.min_numel = std::int64_t{1} << 40;  // Exact throughout.
  return plans;
}

class Soak {
 public:
  Soak(Kind kind, int ranks, int calls, std::uint64_t seed)
      : kind_(kind), plans_(group_plans(ranks)), calls_(calls), seed_(seed) {}

  /// The first failure's words, or "".
  std::string run() {
    std::vector<std::thread> threads;
    std::vector<std::vector<std::unique_ptr<Transport>>> groups;
    for (const GroupPlan& plan : plans_) groups.push_back(members(plan.size));
    for (std::size_t group = 0; group < groups.size(); ++group) {
      for (auto& transport : groups[group]) {
        threads.emplace_back([this, group, &transport] { run_rank(group, std::move(transport)); });
      }
    }
    for (std::thread& thread : threads) thread.join();
    return failure_;
  }

 private:
  /// The ranks of a new group that this process runs.
  std::vector<std::unique_ptr<Transport>> members(int size) const {
#ifdef AGOQ_TEST_MPI
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm ranks = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank < size ? 0 : MPI_UNDEFINED, rank, &ranks);
    std::vector<std::unique_ptr<Transport>> own;
    if (ranks != MPI_COMM_NULL) {
      own.push_back(make_mpi_transport(MPI_Comm_c2f(ranks)));
      MPI_Comm_free(&ranks);
    }
    return own;
#else
    return test::make_group(kind_, size);
#endif
  }

  void run_rank(std::size_t group, std::unique_ptr<Transport> transport) {
    const GroupPlan& plan = plans_[group];
    try {
      Communicator communicator(std::move(transport), plan.options);
      std::mt19937_64 random(seed_ * 1000 + group);
      const int calls = calls_ / static_cast<int>(plans_.size());
      std::uint64_t calls_of_all = 0;  // By which stochastic rounding draws.
      for (int number = 0; number < calls; ++number) {
        const SoakCall call = random_call(random, plan.size);
        const bool right = check(communicator, plan, call, calls_of_all);
        if (call.operation != Operation::kSend) ++calls_of_all;
        if (!right) {
          fail("group " + std::to_string(group) + ", rank " + std::to_string(communicator.rank()) +
               ", call " + std::to_string(number) + ": " + call.describe() + " differs");
          communicator.abort("a result was wrong");
          return;
        }
      }
      communicator.barrier();
    } catch (const std::exception& error) {
      fail("group " + std::to_string(group) + ": " + error.what());
    }
  }

  static bool check(Communicator& communicator, const GroupPlan& plan, const SoakCall& call,
                    std::uint64_t number) {
    const int rank = communicator.rank();
    const SoakReference reference(plan.options, call, plan.size, number);
    return same_values(make(communicator, call, reference.input(rank)), reference.result(rank),
                       call.type);
  }

  /// Makes the call and returns what it gave.
  static Bytes make(Communicator& communicator, const SoakCall& call, Bytes in) {
    const int rank = communicator.rank();
    const auto item = static_cast<std::int64_t>(size_of(call.type));
    const std::int64_t own = call.counts[rank];
    CallOptions with;
    with.factor = call.factor;
    std::vector<const void*> in_chunks;
    for (std::size_t peer = 0; peer < call.counts.size(); ++peer) {
      in_chunks.push_back(in.data() + call.offset(static_cast<int>(peer)) * item);
    }
    Bytes out(in.size());
    const auto chunks_of = [&](Bytes& bytes, bool equal) {
      std::vector<void*> chunks;
      for (std::size_t peer = 0; peer < call.counts.size(); ++peer) {
        const auto index = static_cast<std::int64_t>(peer);
        chunks.push_back(bytes.data() + item * (equal ? index * own : call.offset(peer)));
      }
      return chunks;
    };
    const auto own_chunk = [&] { return in.data() + call.offset(rank) * item; };
    switch (call.operation) {
      case Operation::kAllReduce: {
        Bytes& into = call.in_place ? in : out;
        communicator.all_reduce(in.data(), into.data(), call.total(), call.type, call.op, with);
        return into;
      }
      case Operation::kReduceScatter: {
        out.resize(own * item);
        std::byte* const into = call.in_place ? own_chunk() : out.data();
        communicator.reduce_scatter(in_chunks, call.counts, into, call.type, call.op, with);
        return Bytes(into, into + own * item);
      }
      case Operation::kAllGather: {
        const std::vector<void*> into = chunks_of(call.in_place ? in : out, false);
        communicator.all_gather(own_chunk(), into, call.counts, call.type, with);
        return call.in_place ? in : out;
      }
      case Operation::kBroadcast:
        communicator.broadcast(in.data(), call.total(), call.type, call.root, with);
        return in;
      case Operation::kReduce:
        communicator.reduce(in.data(), call.in_place ? in.data() : out.data(), call.total(),
                            call.type, call.op, call.root, with);
        if (rank != call.root) return {};
        return call.in_place ? in : out;
      case Operation::kGather:
        communicator.gather(own_chunk(), chunks_of(out, false), call.counts, call.type, call.root,
                            with);
        return rank == call.root ? out : Bytes();
      case Operation::kScatter:
        out.resize(own * item);
        communicator.scatter(in_chunks, call.counts, out.data(), call.type, call.root, with);
        return out;
      case Operation::kAllToAll: {
        out.resize(own * item * communicator.size());
        const std::vector<std::int64_t> out_counts(call.counts.size(), own);
        communicator.all_to_all(in_chunks, call.counts, chunks_of(out, true), out_counts, call.type,
                                with);
        return out;
      }
      case Operation::kSend:
        if (rank == call.root) {
          communicator.send(in.data(), call.total(), call.type, call.receiver(communicator.size()));
        }
        if (rank != call.receiver(communicator.size())) return {};
        communicator.receive(out.data(), call.total(), call.type, call.root);
        return out;
      default:
        communicator.barrier();
        return {};
    }
  }

  void fail(const std::string& words) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = words;
  }

  const Kind kind_;
  const std::vector<GroupPlan> plans_;
  const int calls_;
  const std::uint64_t seed_;
  std::mutex mutex_;
  std::string failure_;
};

/// True where all went well, which it prints.
bool soak(Kind kind, int ranks, int calls, std::uint64_t seed) {
  const auto start = Clock::now();
  const std::string failure = Soak(kind, ranks, calls, seed).run();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("%s, %d ranks, seed %llu: %s (%.1f s)\n", test::to_string(kind).c_str(), ranks,
              static_cast<unsigned long long>(seed),
              failure.empty() ? (std::to_string(calls) + " calls, all as the contract says").c_str()
                              : failure.c_str(),
              seconds);
  std::fflush(stdout);
  return failure.empty();
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: soak CALLS SEED TRANSPORT...\n");
    return 2;
  }
  const int calls = std::stoi(argv[1]);
  const std::uint64_t seed = std::stoull(argv[2]);
  bool good = true;
#ifdef AGOQ_TEST_MPI
  good = soak(Kind::kMpi, test::ranks_at_hand(), calls, seed);
#else
  for (int i = 3; i < argc; ++i) {
    bool known = false;
    for (const Kind kind : {Kind::kInproc, Kind::kTcp, Kind::kShm, Kind::kAuto, Kind::kTwoHosts}) {
      if (test::to_string(kind) != argv[i]) continue;
      known = true;
      good = good && soak(kind, 4, calls, seed);
    }
    if (!known) {
      std::fprintf(stderr, "soak: there is no transport '%s'\n", argv[i]);
      return 2;
    }
  }
#endif
  return good ? 0 : 1;
}

}  // namespace
}  // namespace agoq::testing

int main(int argc, char** argv) {
#ifdef AGOQ_TEST_MPI
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  const int result = agoq::testing::run(argc, argv);
  MPI_Finalize();
  return result;
#else
  return agoq::testing::run(argc, argv);
#endif
}
