// What ranks that are processes do to each other when one of them fails.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <string_view>

#include "transport_group.h"

namespace agoq::test {
namespace {

class Faults : public testing::TestWithParam<Kind> {
 protected:
  /// Forks `size` ranks that connect and run body(rank, transport).
  Processes fork_group(int size, std::function<void(Transport&)> body) {
    return Processes(size, [kind = GetParam(), port = free_port(), size, body](int rank) {
      auto store = make_tcp_store("127.0.0.1", port, rank, size, kPatience);
      auto transport = make_transport(kind, *store, rank, size);
      store.reset();
      transport->begin_call(label_of(1));
      body(*transport);
    });
  }
};

void expect_exit_codes(Processes& processes, const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    const int status = processes.wait(rank);
    ASSERT_NE(status, -1) << "rank " << rank << " hangs";
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank;
  }
}

/// Throws unless `body` throws Error(kPeerFailed) about `peer` that says so in words.
void require_peer_failed(int peer, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    const std::string what = error.what();
    if (error.code() == ErrorCode::kPeerFailed && error.peer() == peer &&
        what.find("rank " + std::to_string(peer)) != std::string::npos &&
        what.find("bytes") != std::string::npos) {
      return;
    }
    throw std::runtime_error("another error came: " + what);
  }
  throw std::runtime_error("no error came");
}

TEST_P(Faults, AKilledPeerIsNamedByAllOthers) {
  constexpr std::size_t kBytes = 8 << 20;
  Processes processes = fork_group(3, [](Transport& transport) {
    std::vector<std::byte> memory(2 * kBytes);
    const auto peers = peers_of(transport);
    if (transport.rank() == 1) {
      // One less than the others wait for, however fast it goes.
      for (Tag tag = 0; tag < 99; ++tag) {
        transport.post_send(memory.data(), kBytes, peers, tag);
      }
      for (int i = 0; i < 100; ++i) transport.wait(Clock::now() + 1ms);
      ::kill(::getpid(), SIGKILL);
    }
    require_peer_failed(1, [&] {
      // Something is awaited at any time, so that whoever hears of the end first can say what.
      const Ticket last = transport.post_receive(1, 99, memory.data() + kBytes, kBytes);
      for (Tag tag = 0; tag < 99; ++tag) {
        complete(transport, transport.post_receive(1, tag, memory.data(), kBytes));
      }
      complete(transport, last);
    });
  });
  const int status = processes.wait(1);
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  expect_exit_codes(processes, {0, 2});
}

TEST_P(Faults, AKilledPeerWakesASleeper) {
  Processes processes = fork_group(2, [](Transport& transport) {
    const Ticket ticket = transport.post_receive(1 - transport.rank(), 1, 100);
    if (transport.rank() == 1) {
      std::this_thread::sleep_for(200ms);
      ::kill(::getpid(), SIGKILL);
    }
    const auto start = Clock::now();
    require_peer_failed(1, [&] {
      for (;;) {
        if (transport.test(ticket)) return;
        transport.wait(Clock::now() + kPatience);
      }
    });
    if (Clock::now() - start > 10s) throw std::runtime_error("the news came late");
  });
  expect_exit_codes(processes, {0});
}

/// What processes tell each other beside their transport.
struct Shared {
  std::atomic<bool> peer_is_stopped{false};
  std::atomic<bool> deadline_is_past{false};
};

TEST_P(Faults, AStoppedPeerDoesNotHoldAWaitBeyondItsDeadline) {
  void* const memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const shared = new (memory) Shared;
  Processes processes = fork_group(2, [shared](Transport& transport) {
    std::byte data[100] = {};
    const int peer = 1 - transport.rank();
    if (transport.rank() == 1) {
      ::raise(SIGSTOP);
      complete(transport, transport.post_send(data, sizeof data, std::span(&peer, 1), 1));
      return;
    }
    const Ticket ticket = transport.post_receive(1, 1, data, sizeof data);
    if (!comes_true([&] { return shared->peer_is_stopped.load(); })) {
      throw std::runtime_error("the peer was not stopped");
    }
    const auto deadline = Clock::now() + 500ms;
    while (Clock::now() < deadline) {
      if (transport.test(ticket)) throw std::runtime_error("a stopped process has sent");
      transport.wait(deadline);
    }
    const bool missed = Clock::now() > deadline + 5s;
    shared->deadline_is_past = true;
    if (missed) throw std::runtime_error("the deadline was missed");
    // Stopped is not dead: what it sends later still counts.
    complete(transport, ticket);
  });
  siginfo_t change{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(processes.pid(1)), &change, WSTOPPED), 0);
  shared->peer_is_stopped = true;
  EXPECT_TRUE(comes_true([&] { return shared->deadline_is_past.load(); }));
  ::kill(processes.pid(1), SIGCONT);
  expect_exit_codes(processes, {0, 1});
  ::munmap(memory, sizeof(Shared));
}

/// Those whose names hold `part`: /dev/shm is not this process's alone.
std::size_t count_files(const std::string& folder, const std::string& part = "") {
  DIR* directory = ::opendir(folder.c_str());
  if (directory == nullptr) return 0;
  std::size_t count = 0;
  while (const dirent* entry = ::readdir(directory)) {
    count += std::string_view(entry->d_name).find(part) != std::string_view::npos;
  }
  ::closedir(directory);
  return count;
}

std::size_t mapped_segments() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("memfd:agoq") != std::string::npos;
  }
  return count;
}

TEST_P(Faults, GroupsLeaveNothingBehind) {
  TransportConfig config;
  config.shared_bytes = 1 << 20;
  const auto use_group = [&](int round) {
    auto group = make_group(GetParam(), 2, config);
    const auto data = pattern(5000, 1);
    for (auto& transport : group) transport->begin_call(label_of(round));
    const int to[] = {1};
    group[0]->post_send(data.data(), data.size(), to, 1);
    complete(*group[1], group[1]->post_receive(0, 1, data.size()));
  };
  use_group(0);
  const std::size_t descriptors = count_files("/proc/self/fd");
  const std::size_t shared = count_files("/dev/shm", "agoq");
  const std::size_t segments = mapped_segments();
  const std::size_t threads = count_files("/proc/self/task");
  for (int round = 0; round < 200; ++round) use_group(round);
  EXPECT_EQ(count_files("/proc/self/fd"), descriptors);
  EXPECT_EQ(count_files("/dev/shm", "agoq"), shared);
  EXPECT_EQ(mapped_segments(), segments);
  EXPECT_TRUE(comes_true([&] { return count_files("/proc/self/task") <= threads; }));
}

TEST_P(Faults, AMissingRankIsNamedAtTheDeadline) {
  MemoryStore store;
  TransportConfig config;
  config.timeout = 300ms;
  try {
    make_transport(GetParam(), store, 0, 2, config);
    FAIL() << "a group of two was made of one";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_NE(std::string(error.what()).find("/1"), std::string::npos) << error.what();
  }
}

TEST_P(Faults, ANewGroupWorksAfterAFailedOne) {
  MemoryStore store;
  for (const std::string name : {"first", "second"}) {
    TransportConfig config;
    config.name = name;
    std::vector<std::unique_ptr<Transport>> group(2);
    run_threads(2, [&](int rank) {
      group[static_cast<std::size_t>(rank)] = make_transport(GetParam(), store, rank, 2, config);
    });
    for (auto& transport : group) transport->begin_call(label_of(1));
    const int to[] = {1};
    const std::byte data{};
    group[0]->post_send(&data, 1, to, 1);
    complete(*group[1], group[1]->post_receive(0, 1, 1));
    if (name == "first") group[0]->abort("to see what comes after");
  }
}

INSTANTIATE_TEST_SUITE_P(All, Faults,
                         testing::Values(Kind::kTcp, Kind::kShm, Kind::kAuto, Kind::kTwoHosts),
                         [](const auto& info) { return to_string(info.param); });

}  // namespace
}  // namespace agoq::test
