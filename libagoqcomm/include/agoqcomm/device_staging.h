// Device memory over any host transport: tcp, shm, MPI, Gloo.
#pragma once

#include <chrono>
#include <memory>

#include "agoqcomm/device_runtime.h"
#include "agoqcomm/device_transport.h"
#include "agoqcomm/export.h"
#include "agoqcomm/transport.h"

namespace agoq {

/// Copies to pinned host memory, lets a thread of its own move the bytes by `host`, and copies
/// back, all in the stream's order: the caller's thread waits for nothing. The pinned memory grows
/// to the largest exchange so far. `timeout` bounds the host's part of one exchange; after it, as
/// after any error, streams go on with bytes that mean nothing and error() has words.
///
/// A stream that waits for the host holds up other streams in its hardware queue. Where several
/// ranks of one process stage from one device, give every stream a queue of its own
/// (CUDA_DEVICE_MAX_CONNECTIONS=32), or they may wait for each other until the timeout.
///
/// It cannot be captured in a graph: the host's part would not be replayed. `runtime` outlives it,
/// and its last exchange must be done before it is destroyed.
AGOQ_API std::unique_ptr<DeviceTransport> make_staging_transport(std::unique_ptr<Transport> host,
                                                                 DeviceRuntime& runtime,
                                                                 std::chrono::milliseconds timeout);

}  // namespace agoq
