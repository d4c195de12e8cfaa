#include "codec/cuda/launch.h"

namespace agoq::cuda {

bool is_built() noexcept { return true; }

int device_count() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // A machine without a driver is no error that a later call should meet.
  return 0;
}

const char* error_text(int error) noexcept {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

}  // namespace agoq::cuda
