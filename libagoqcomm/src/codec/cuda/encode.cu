#include "codec/cuda/encode.cuh"
#include "codec/cuda/launch_kernel.cuh"

namespace agoq::cuda {

int launch_encode(ElementFormat format, bool stochastic, const EncodeArguments& arguments,
                  const Launch& launch) {
  return for_format(format, [&](auto format_type) {
    using Format = typename decltype(format_type)::type;
    if (!stochastic && arguments.shape.vectors <= kWarp) {
      return for_type(arguments.type, [&](auto type) {
        return launch_kernel(encode_kernel<Format, type(), 1, false>, arguments, launch);
      });
    }
    return for_vectors_per_lane(arguments.shape, [&](auto vectors) {
      constexpr int kVectors = vectors();
      if (stochastic) {
        return launch_kernel(encode_kernel<Format, kAnyType, kVectors, true>, arguments, launch);
      }
      // One vector a lane has been served above.
      constexpr int kSeveral = kVectors > 1 ? kVectors : 2;
      return launch_kernel(encode_kernel<Format, kAnyType, kSeveral, false>, arguments, launch);
    });
  });
}

}  // namespace agoq::cuda
