#include "codec/cuda/accumulate.cuh"
#include "codec/cuda/launch_kernel.cuh"

namespace agoq::cuda {

int launch_accumulate(ElementFormat format, const DecodeArguments& arguments,
                      const Launch& launch) {
  return for_format(format, [&](auto format_type) {
    using Format = typename decltype(format_type)::type;
    return launch_kernel(accumulate_kernel<Format>, arguments, launch);
  });
}

}  // namespace agoq::cuda
