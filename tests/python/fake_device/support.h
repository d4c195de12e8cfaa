// The fake device behind the seam of the device collectives.
#pragma once

#include "device_support.h"

namespace fake {

/// Lives as long as the process.
agoq::DeviceSupport& support();
/// While set, no codec can be made.
void set_codec_fails(bool fails);
/// While set, there is no pinned memory to be had.
void set_pinned_fails(bool fails);

}  // namespace fake
