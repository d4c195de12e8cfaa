// NCCL, for frameworks that have a communicator already.
#pragma once

#include <memory>

#include "agoqcomm/device_transport.h"
#include "agoqcomm/export.h"

namespace agoq {

/// A transport over the caller's `communicator` (an ncclComm_t), which stays the caller's: it must
/// outlive the transport, and nothing else may use it at the same time. abort() does not end
/// kernels that wait for a dead peer; ncclCommAbort() by the owner does.
///
/// NCCL is not linked but looked for, once a call: the copy that the process has loaded already,
/// which is the one that made the communicator, then the file that AGOQ_NCCL_PATH names, then
/// libnccl.so.2. Throws Error(kUnsupported) where there is none, one older than 2.13, or one that
/// lacks a function; Error(kInvalidArgument) for a null communicator.
AGOQ_API std::unique_ptr<DeviceTransport> make_nccl_transport(void* communicator);

}  // namespace agoq
