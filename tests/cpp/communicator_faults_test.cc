// One rank of three fails in the middle of all-reduces, in every way a process can, over shared
// memory and sockets: the others get an error in time, which names the rank, the operation and the
// bytes; they keep no descriptor, thread or mapping of the group; and their next group works.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "agoqcomm/communicator.h"
#include "transport_group.h"

namespace agoq::test {
namespace {

constexpr auto kTimeout = 4s;
constexpr std::int64_t kCount = 1 << 20;

enum class Fault { kKilled, kStopped, kConnectionsReset };

std::string to_string(Fault fault) {
  constexpr const char* kNames[] = {"killed", "stopped", "reset"};
  return kNames[static_cast<int>(fault)];
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* const directory = ::opendir(folder.c_str());
  if (directory == nullptr) return names;
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(directory);
  return names;
}

/// What a group may not leave behind, as text to compare.
std::string held_by_process() {
  std::ifstream maps("/proc/self/maps");
  int segments = 0;
  for (std::string line; std::getline(maps, line);) {
    segments += line.find("memfd:agoq") != std::string::npos;
  }
  return std::to_string(names_in("/proc/self/fd").size()) + " descriptors, " +
         std::to_string(names_in("/proc/self/task").size()) + " threads, " +
         std::to_string(segments) + " segments";
}

/// Every socket of this process ends at once, a TCP one with a reset.
void reset_all_sockets() {
  for (const std::string& name : names_in("/proc/self/fd")) {
    const int fd = std::stoi(name);
    struct stat status{};
    if (::fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) continue;
    const linger at_once{1, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    const int other = ::socket(AF_UNIX, SOCK_STREAM, 0);
    ::dup2(other, fd);
    ::close(other);
  }
}

void suffer(Fault fault) {
  switch (fault) {
    case Fault::kKilled:
      ::kill(::getpid(), SIGKILL);
      return;
    case Fault::kStopped:
      ::kill(::getpid(), SIGSTOP);
      return;
    case Fault::kConnectionsReset:
      return reset_all_sockets();
  }
}

std::unique_ptr<Communicator> join(Kind kind, std::uint16_t port, int rank, int size) {
  const auto store = make_tcp_store("127.0.0.1", port, rank, size, kPatience);
  Options options;
  options.timeout = kTimeout;
  return std::make_unique<Communicator>(make_transport(kind, *store, rank, size), options);
}

float all_reduce(Communicator& communicator, std::vector<float>& values) {
  std::fill(values.begin(), values.end(), 1.0f);
  communicator.all_reduce(values.data(), values.data(), kCount, DataType::kFloat32, ReduceOp::kSum);
  return values[kCount / 3];
}

void require(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

/// Calls until the error comes, and checks it.
void call_until_error(Communicator& communicator, std::vector<float>& values) {
  Clock::time_point last = Clock::now();
  try {
    for (int call = 0; call < 100000; ++call) {
      last = Clock::now();
      all_reduce(communicator, values);
    }
  } catch (const Error& error) {
    const std::string what = error.what();
    require(error.code() == ErrorCode::kPeerFailed || error.code() == ErrorCode::kTimeout, what);
    require(error.peer().has_value(), "blames nobody: " + what);
    for (const char* const word : {"rank ", "all_reduce", "bytes"}) {
      require(what.find(word) != std::string::npos, std::string("lacks ") + word + ": " + what);
    }
    require(Clock::now() - last < kTimeout + 3s, "came late: " + what);
    return;
  }
  throw std::runtime_error("no error came");
}

using Case = std::tuple<Kind, Fault>;
class CommunicatorFaults : public testing::TestWithParam<Case> {};

TEST_P(CommunicatorFaults, TheOthersAreToldKeepNothingAndGoOn) {
  const auto [kind, fault] = GetParam();
  const std::uint16_t first = free_port();
  std::uint16_t second = free_port();
  while (second == first) second = free_port();
  Processes processes(3, [=, kind = kind, fault = fault](int rank) {
    std::vector<float> values(kCount);
    const std::string before = held_by_process();
    {
      const auto failing = join(kind, first, rank, 3);
      all_reduce(*failing, values);
      if (rank == 1) {
        std::thread([=] {
          std::this_thread::sleep_for(20ms);
          suffer(fault);
        }).detach();
      }
      call_until_error(*failing, values);
    }
    if (rank == 1) return;
    require(comes_true([&] { return held_by_process() == before; }),
            "had " + before + ", has " + held_by_process());
    const auto next = join(kind, second, rank / 2, 2);
    const float sum = all_reduce(*next, values);
    require(sum > 1.9f && sum < 2.1f, "the next group's sum is " + std::to_string(sum));
  });
  for (const int rank : {0, 2}) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
}

INSTANTIATE_TEST_SUITE_P(
    All, CommunicatorFaults,
    testing::Combine(testing::Values(Kind::kTcp, Kind::kShm, Kind::kAuto, Kind::kTwoHosts),
                     testing::Values(Fault::kKilled, Fault::kStopped, Fault::kConnectionsReset)),
    [](const auto& info) {
      return to_string(std::get<0>(info.param)) + "_" + to_string(std::get<1>(info.param));
    });

// Containers give /dev/shm 64 MB or less. The segments are not in it.
TEST(CommunicatorWithoutRoomInDevShm, SharesMemoryAllTheSame) {
  const int status =
      Processes(1, [](int) {
        if (::unshare(CLONE_NEWNS) != 0 ||
            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4k") != 0) {
          std::_Exit(77);
        }
        auto group = make_group(Kind::kShm, 2);
        run_threads(2, [&](int rank) {
          Communicator communicator(std::move(group[static_cast<std::size_t>(rank)]), Options());
          std::vector<float> values(kCount);
          require(std::abs(all_reduce(communicator, values) - 2.0f) < 0.1f, "the sum is wrong");
        });
      }).wait(0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    GTEST_SKIP() << "mounting a small /dev/shm needs root";
  }
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace agoq::test
