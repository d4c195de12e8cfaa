#include "device_support.h"

#include "agoqcomm/cuda_codec.h"
#include "agoqcomm/cuda_row_codec.h"
#include "agoqcomm/error.h"

namespace agoq {

std::optional<DeviceSupport> cuda_support() {
  if (!CudaCodec::is_built()) return std::nullopt;
  if (CudaCodec::device_count() == 0) {
    throw Error(ErrorCode::kUnsupported,
                "agoq: torch sees a GPU, but this package's kernels find none, as with a driver "
                "older than the CUDA they were built with; build the package with torch's CUDA "
                "version, or with AGOQ_CUDA=OFF on all ranks.");
  }
  return DeviceSupport{
      &cuda_runtime(),
      [](const BlockFormat& format) { return std::make_unique<CudaCodec>(format); },
      [](const BlockFormat& format) { return std::make_unique<CudaRowCodec>(format); },
      CudaCodec::kMaxPieces};
}

}  // namespace agoq
