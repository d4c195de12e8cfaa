// The mpi transport: over a communicator that the program already has. In a library of its own,
// agoqcomm::mpi, so that nothing else links MPI.
#pragma once

#include <memory>

#include "agoqcomm/export.h"
#include "agoqcomm/transport.h"
#include "agoqcomm/transport_config.h"

namespace agoq {

/// `communicator` is the Fortran handle of an intracommunicator, MPI_Comm_c2f(comm): an int with
/// every MPI. All its ranks make this call; it duplicates the communicator, and the caller may free
/// his own afterwards. Of `config` it takes timeout, early_bytes and send_bytes.
///
/// The caller initializes and finalizes MPI, and destroys the transport before he finalizes. The
/// transport calls MPI in the thread that uses it, and in no other: with MPI_THREAD_FUNNELED or
/// less that must be the main thread throughout. Where other threads call MPI at the same time,
/// MPI_THREAD_MULTIPLE is needed, which no library can check for him.
///
/// Throws Error: kInvalidArgument for no intracommunicator or MPI that is not running, kUnsupported
/// where the thread level is too low and which one is needed, kTimeout where not all ranks came,
/// kSystem for what MPI itself refused.
AGOQ_API std::unique_ptr<Transport> make_mpi_transport(int communicator,
                                                       const TransportConfig& config = {});

}  // namespace agoq
