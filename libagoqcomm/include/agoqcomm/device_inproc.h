// The inproc transport for device memory: ranks are threads of one process that share a device.
#pragma once

#include <memory>
#include <vector>

#include "agoqcomm/device_runtime.h"
#include "agoqcomm/device_transport.h"
#include "agoqcomm/export.h"

namespace agoq {

/// One DeviceTransport for each of `size` ranks, each to be used by a thread of its own; `runtime`
/// outlives them. Every rank copies what it receives, on its own stream, once the sender's stream
/// is there.
///
/// exchange() waits until the other ranks' threads have called it too (never for the device), since
/// a stream can wait only for what has been recorded. It can be captured where all ranks' streams
/// belong to one capture. Throws Error(kInvalidArgument) for size < 1.
AGOQ_API std::vector<std::unique_ptr<DeviceTransport>> make_device_inproc_group(
    int size, DeviceRuntime& runtime);

}  // namespace agoq
