// What the lists of an exchange must be, checked before anything is put on a stream.
#pragma once

#include <span>
#include <string_view>

#include "agoqcomm/device_transport.h"

namespace agoq {

/// Throws Error(kInvalidArgument) that names the transport and the entry that is wrong.
void check_exchange(std::string_view transport, int rank, int size,
                    std::span<const DeviceSend> sends, std::span<const DeviceReceive> receives);

}  // namespace agoq
