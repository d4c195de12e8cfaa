#include "transport/mpi/mpi_group.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>

#include "agoqcomm/error.h"

namespace agoq {
namespace {

// What every MPI allows as a tag at least.
constexpr int kTags = 32768;

// The number of the last group of this process. All ranks of a group count on from the highest.
std::atomic<int> last_group{0};

/// Waits for a nonblocking collective of all ranks. One that not all have joined cannot be taken
/// back: then it is left to MPI, with the memory that `kept` names.
template <typename Kept>
void finish(MPI_Request request, Clock::time_point deadline, std::unique_ptr<Kept>& kept) {
  for (int done = 0; done == 0;) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "making the mpi transport");
    if (done != 0) return;
    if (Clock::now() >= deadline) {
      [[maybe_unused]] const auto* left_to_mpi = kept.release();
      throw Error(ErrorCode::kTimeout,
                  "Timed out waiting for all ranks of the communicator to make the mpi transport; "
                  "every one of them has to");
    }
    std::this_thread::yield();
  }
}

}  // namespace

std::string mpi_error_text(int error) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(error, text, &length) != MPI_SUCCESS) return std::to_string(error);
  return std::string(text, static_cast<std::size_t>(length));
}

void check_mpi(int error, const char* what) {
  if (error == MPI_SUCCESS) return;
  throw Error(ErrorCode::kSystem, std::string(what) + ": " + mpi_error_text(error));
}

bool mpi_is_running() {
  int begun = 0;
  int ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  return begun != 0 && ended == 0;
}

MpiGroup::MpiGroup(MPI_Comm callers, Clock::time_point deadline) {
  check_mpi(MPI_Query_thread(&thread_level_), "MPI_Query_thread");
  check_thread();
  if (callers == MPI_COMM_NULL) {
    throw Error(ErrorCode::kInvalidArgument,
                "the communicator is MPI_COMM_NULL; give the handle MPI_Comm_c2f(comm) of one that "
                "this rank belongs to");
  }
  int between_groups = 0;
  check_mpi(MPI_Comm_test_inter(callers, &between_groups), "MPI_Comm_test_inter");
  if (between_groups != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "the mpi transport takes an intracommunicator; merge an intercommunicator first");
  }
  duplicate(callers, deadline);
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  agree_on_tag(deadline);
}

MpiGroup::~MpiGroup() {
  if (comm_ != MPI_COMM_NULL && mpi_is_running()) MPI_Comm_free(&comm_);
}

void MpiGroup::duplicate(MPI_Comm callers, Clock::time_point deadline) {
  auto made = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(callers, made.get(), &request), "MPI_Comm_idup");
  finish(request, deadline, made);
  comm_ = *made;
}

void MpiGroup::agree_on_tag(Clock::time_point deadline) {
  struct Numbers {
    int own;
    int highest;
  };
  auto numbers = std::make_unique<Numbers>(Numbers{last_group.load(), 0});
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallreduce(&numbers->own, &numbers->highest, 1, MPI_INT, MPI_MAX, comm_, &request),
            "MPI_Iallreduce");
  finish(request, deadline, numbers);
  last_group.store(numbers->highest + 1);
  tag_ = (numbers->highest + 1) % kTags;
}

void MpiGroup::check_thread() const {
  int is_main = 0;
  if (thread_level_ >= MPI_THREAD_SERIALIZED) return;
  MPI_Is_thread_main(&is_main);
  if (is_main != 0) return;
  throw Error(ErrorCode::kUnsupported,
              "MPI was initialized for calls of the main thread only, and this is another: ask "
              "MPI_Init_thread for MPI_THREAD_SERIALIZED, or for MPI_THREAD_MULTIPLE where several "
              "threads call MPI at the same time");
}

}  // namespace agoq
