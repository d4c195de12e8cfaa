#include "agoqcomm/version.h"

namespace agoq {

const char* version() noexcept { return AGOQCOMM_VERSION_STRING; }

}  // namespace agoq
