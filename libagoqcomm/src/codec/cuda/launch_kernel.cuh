// Starts a kernel, and turns what is known when a call is made into template arguments.
#pragma once

#include <type_traits>

#include "codec/cuda/launch.h"

namespace agoq::cuda {

template <class Arguments>
int launch_kernel(void (*kernel)(Arguments), const std::type_identity_t<Arguments>& arguments,
                  const Launch& launch) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(launch.thread_blocks, launch.segments);
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(launch.stream);
  return static_cast<int>(cudaLaunchKernelEx(&config, kernel, arguments));
}

/// A value as a type, for generic lambdas.
template <auto kValue>
using Constant = std::integral_constant<decltype(kValue), kValue>;

// Each calls `use` with the constant that is the first argument's value.

template <class Use>
int for_type(DataType type, Use use) {
  switch (type) {
    case DataType::kFloat32:
      return use(Constant<DataType::kFloat32>{});
    case DataType::kBfloat16:
      return use(Constant<DataType::kBfloat16>{});
    case DataType::kFloat16:
      return use(Constant<DataType::kFloat16>{});
    default:
      return cudaErrorInvalidValue;
  }
}

/// Vectors of a block that each lane of a warp takes: blocks never leave a warp.
template <class Use>
int for_vectors_per_lane(const BlockShape& shape, Use use) {
  switch (shape.vectors / kWarp) {
    case 4:
      return use(Constant<4>{});
    case 2:
      return use(Constant<2>{});
    default:
      return use(Constant<1>{});
  }
}

template <class Use>
int for_bool(bool condition, Use use) {
  return condition ? use(Constant<true>{}) : use(Constant<false>{});
}

}  // namespace agoq::cuda
