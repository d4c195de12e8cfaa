// The one place that states the version: CMake, the wheel and the start-up handshake read it here.
#pragma once

#define AGOQCOMM_VERSION_MAJOR 0
#define AGOQCOMM_VERSION_MINOR 1
#define AGOQCOMM_VERSION_PATCH 0
#define AGOQCOMM_VERSION_STRING "0.1.0"

#include "agoqcomm/export.h"

namespace agoq {

/// Version of the library that was linked, which a caller may compare with AGOQCOMM_VERSION_STRING.
AGOQ_API const char* version() noexcept;

}  // namespace agoq
