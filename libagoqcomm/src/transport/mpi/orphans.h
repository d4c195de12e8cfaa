// Memory that MPI may still read or write after the transport that posted it is gone.
#pragma once

#include <cstddef>
#include <memory>

#include "transport/mpi/mpi_group.h"

namespace agoq {

/// Keeps `memory` until `request` has completed. MPI cannot take back a message that its peer has
/// begun to read, and one for a peer that died may stay for ever: such memory is never freed.
/// Thread-safe.
void adopt_orphan(MPI_Request request, std::unique_ptr<std::byte[]> memory) noexcept;

/// Frees what has completed since. Thread-safe.
void sweep_orphans() noexcept;

}  // namespace agoq
