// The communicator of one mpi transport, and MPI's calls with errors as agoq::Error.
#pragma once

#include <mpi.h>

#include <string>
#include <thread>

#include "agoqcomm/transport.h"

namespace agoq {

/// MPI's words for one of its error codes.
std::string mpi_error_text(int error);
/// Throws Error(kSystem, "<what>: <MPI's words>") unless `error` is MPI_SUCCESS.
void check_mpi(int error, const char* what);
/// Between MPI_Init and MPI_Finalize.
bool mpi_is_running();

/// A duplicate of the caller's communicator, and the tag of its messages. Used by one thread at a
/// time, which check_thread() holds to what MPI allows.
class MpiGroup {
 public:
  /// Collective. Throws Error as make_mpi_transport() does.
  MpiGroup(MPI_Comm callers, Clock::time_point deadline);
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// No earlier group of the same ranks has used it: a message that such a group never received
  /// stays in MPI, and MPI gives the number of a freed communicator to a new one.
  int tag() const { return tag_; }

  /// Throws Error(kUnsupported) on a thread that MPI was not initialized for.
  void check_thread() const;

 private:
  void duplicate(MPI_Comm callers, Clock::time_point deadline);
  void agree_on_tag(Clock::time_point deadline);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int tag_ = 0;
  int thread_level_ = MPI_THREAD_SINGLE;
};

}  // namespace agoq
