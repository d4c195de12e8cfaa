#include "codec/thread_count.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace agoq {
namespace {

/// What launchers tell a rank about its node: torchrun, Open MPI, Intel MPI, MPICH.
constexpr const char* kLocalSizes[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                       "MPI_LOCALNRANKS"};

int usable_cores() {
#if defined(__linux__)
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int codec_thread_count(int wanted, int local_ranks) {
  if (wanted != 0) return wanted;
  for (const char* name : kLocalSizes) {
    const char* text = std::getenv(name);
    if (text != nullptr) local_ranks = std::max(local_ranks, std::atoi(text));
  }
  return std::clamp(usable_cores() / std::max(local_ranks, 1), 1, kMostAutomaticThreads);
}

}  // namespace agoq
