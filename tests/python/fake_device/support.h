// The fake device behind the seam of the device collectives.
#pragma once

#include "device_support.h"

namespace fake {

/// Lives as long as the process.
agoq::DeviceSupport& support();

}  // namespace fake
