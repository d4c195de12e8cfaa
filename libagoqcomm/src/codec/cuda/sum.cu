#include "codec/cuda/launch_kernel.cuh"
#include "codec/cuda/sum.cuh"

namespace agoq::cuda {

int launch_sum_decode(ElementFormat format, const SumArguments& arguments, const Launch& launch) {
  return for_format(format, [&](auto format_type) {
    using Format = typename decltype(format_type)::type;
    return launch_kernel(sum_decode_kernel<Format>, arguments, launch);
  });
}

int launch_sum_encode(ElementFormat format, bool stochastic, const SumArguments& arguments,
                      const Launch& launch) {
  return for_format(format, [&](auto format_type) {
    return for_vectors_per_lane(arguments.shape, [&](auto vectors) {
      return for_bool(stochastic, [&](auto by_chance) {
        using Format = typename decltype(format_type)::type;
        return launch_kernel(sum_encode_kernel<Format, vectors(), by_chance()>, arguments, launch);
      });
    });
  });
}

}  // namespace agoq::cuda
