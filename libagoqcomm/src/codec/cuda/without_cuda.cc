// launch.h for builds without CUDA. CudaCodec cannot be constructed there, so nothing is launched.
#include "codec/cuda/launch.h"

namespace agoq::cuda {
namespace {

constexpr int kNotBuilt = 1;

}  // namespace

bool is_built() noexcept { return false; }
int device_count() noexcept { return 0; }
const char* error_text(int) noexcept { return "this build has no CUDA kernels"; }

int launch_encode(ElementFormat, bool, const EncodeArguments&, const Launch&) { return kNotBuilt; }
int launch_decode(ElementFormat, DataType, const DecodeArguments&, const Launch&) {
  return kNotBuilt;
}
int launch_accumulate(ElementFormat, const DecodeArguments&, const Launch&) { return kNotBuilt; }
int launch_sum_decode(ElementFormat, const SumArguments&, const Launch&) { return kNotBuilt; }
int launch_sum_encode(ElementFormat, bool, const SumArguments&, const Launch&) { return kNotBuilt; }

}  // namespace agoq::cuda
