#include "codec/cuda/decode.cuh"
#include "codec/cuda/launch_kernel.cuh"

namespace agoq::cuda {

int launch_decode(ElementFormat format, DataType type, const DecodeArguments& arguments,
                  const Launch& launch) {
  return for_format(format, [&](auto format_type) {
    return for_type(type, [&](auto element) {
      using Format = typename decltype(format_type)::type;
      return launch_kernel(decode_kernel<Format, element()>, arguments, launch);
    });
  });
}

}  // namespace agoq::cuda
