// What stands in for the CUDA parts in builds without them. CudaCodec cannot be constructed there,
// so nothing is launched.
#include "agoqcomm/device_runtime.h"
#include "agoqcomm/error.h"
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
int launch_rows(ElementFormat, const RowArguments&, const Launch&) { return kNotBuilt; }

}  // namespace agoq::cuda

namespace agoq {

DeviceRuntime& cuda_runtime() {
  throw Error(ErrorCode::kUnsupported,
              "this build of libagoqcomm has no CUDA; build it where nvcc is found, or with "
              "-DAGOQ_CUDA=ON to be told why it is not");
}

}  // namespace agoq
