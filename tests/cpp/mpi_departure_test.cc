// A rank of an MPI job that is killed or exits: the job ends in time, by the launcher or because
// the others are told, and leaves no process behind. MPI gives no more than that: a launcher ends a
// job whose rank has died, as MPICH's and Open MPI's do at once.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <sstream>

#include "transport_group.h"

namespace agoq::test {
namespace {

struct Ended {
  int status;
  std::string output;
  std::vector<pid_t> processes;
};

Ended run_job(const std::string& fault) {
  const std::string command = std::string(AGOQ_MPIRUN_DEPARTURE) + " " + fault + " 2>&1";
  FILE* const job = ::popen(command.c_str(), "r");
  std::string output;
  char line[4096];
  while (std::fgets(line, sizeof line, job) != nullptr) output += line;
  Ended ended{::pclose(job), output, {}};
  std::istringstream words(output);
  for (std::string word; words >> word;) {
    pid_t pid = 0;
    if (word == "process" && words >> pid) ended.processes.push_back(pid);
  }
  return ended;
}

bool is_gone(pid_t pid) {
  const auto deadline = Clock::now() + kPatience;
  while (::kill(pid, 0) == 0 && Clock::now() < deadline) std::this_thread::sleep_for(5ms);
  return ::kill(pid, 0) != 0;
}

class MpiDeparture : public testing::TestWithParam<const char*> {};

TEST_P(MpiDeparture, TheJobEndsInTimeAndLeavesNothing) {
  const auto start = Clock::now();
  const Ended ended = run_job(GetParam());
  EXPECT_LT(Clock::now() - start, kPatience) << ended.output;
  EXPECT_NE(ended.status, 0) << ended.output;
  // A launcher may write of itself in the midst of the ranks' lines; two of the three are enough.
  ASSERT_GE(ended.processes.size(), 2u) << ended.output;
  for (const pid_t pid : ended.processes) {
    EXPECT_TRUE(is_gone(pid)) << pid << "\n" << ended.output;
  }
  // Whoever is told before the launcher ends it, is told of rank 1.
  const std::size_t told = ended.output.find("told: ");
  if (told != std::string::npos) {
    EXPECT_NE(ended.output.find("rank 1", told), std::string::npos) << ended.output;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MpiDeparture, testing::Values("killed", "exits"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace agoq::test
