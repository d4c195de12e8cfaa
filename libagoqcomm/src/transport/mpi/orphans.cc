#include "transport/mpi/orphans.h"

#include <mutex>
#include <vector>

namespace agoq {
namespace {

struct Orphan {
  MPI_Request request;
  std::unique_ptr<std::byte[]> memory;
};

struct Orphans {
  std::mutex mutex;
  std::vector<Orphan> all;
};

// Never destroyed: MPI may use the memory until the process ends.
Orphans& orphans() {
  static auto* const kept = new Orphans;
  return *kept;
}

bool is_done(Orphan& orphan) {
  int done = 0;
  return MPI_Test(&orphan.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
}

}  // namespace

void adopt_orphan(MPI_Request request, std::unique_ptr<std::byte[]> memory) noexcept {
  // After MPI_Finalize nothing is pending, and nothing may be asked.
  if (request == MPI_REQUEST_NULL || !mpi_is_running()) return;
  Orphan orphan{request, std::move(memory)};
  if (is_done(orphan)) return;
  Orphans& kept = orphans();
  const std::lock_guard lock(kept.mutex);
  try {
    kept.all.push_back(std::move(orphan));
  } catch (...) {
    // No memory for the record: then the memory itself stays with MPI for good.
    [[maybe_unused]] const auto* left_to_mpi = orphan.memory.release();
  }
}

void sweep_orphans() noexcept {
  if (!mpi_is_running()) return;
  Orphans& kept = orphans();
  const std::lock_guard lock(kept.mutex);
  std::erase_if(kept.all, is_done);
}

}  // namespace agoq
