// The inproc transport: ranks are threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "agoqcomm/export.h"
#include "agoqcomm/transport.h"

namespace agoq {

/// One Transport for each of `size` ranks; element r is rank r's, to be used by one thread at a
/// time. The group lives as long as any of them. Throws Error(kInvalidArgument) for size < 1.
AGOQ_API std::vector<std::unique_ptr<Transport>> make_inproc_group(int size);

}  // namespace agoq
