#include "codec/cuda/encode.cuh"

#include "codec/cuda/launch_kernel.cuh"

namespace agoq::cuda {

int launch_encode(ElementFormat format, DataType type, bool stochastic,
                  const EncodeArguments& arguments, const Launch& launch) {
  return for_format(format, [&](auto format_type) {
    return for_type(type, [&](auto element) {
      return for_vectors_per_lane(arguments.shape, [&](auto vectors) {
        return for_bool(stochastic, [&](auto by_chance) {
          using Format = typename decltype(format_type)::type;
          return launch_kernel(encode_kernel<Format, element(), vectors(), by_chance()>, arguments,
                               launch);
        });
      });
    });
  });
}

}  // namespace agoq::cuda
