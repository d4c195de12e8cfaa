// Picks the instance of a kernel template that a call needs, and starts it.
#pragma once

#include "codec/cuda/accumulate.cuh"
#include "codec/cuda/decode.cuh"
#include "codec/cuda/encode.cuh"
#include "codec/cuda/format_launches.h"
#include "codec/cuda/launch_kernel.cuh"
#include "codec/cuda/rows.cuh"
#include "codec/cuda/sum.cuh"

namespace agoq::cuda {

template <class Format>
int launch_encode(bool stochastic, const EncodeArguments& arguments, const Launch& launch) {
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
}

template <class Format>
int launch_decode(DataType type, const DecodeArguments& arguments, const Launch& launch) {
  return for_type(type, [&](auto element) {
    return launch_kernel(decode_kernel<Format, element()>, arguments, launch);
  });
}

template <class Format>
int launch_accumulate(const DecodeArguments& arguments, const Launch& launch) {
  return launch_kernel(accumulate_kernel<Format>, arguments, launch);
}

template <class Format>
int launch_sum_decode(const SumArguments& arguments, const Launch& launch) {
  return launch_kernel(sum_decode_kernel<Format>, arguments, launch);
}

template <class Format>
int launch_sum_encode(bool stochastic, const SumArguments& arguments, const Launch& launch) {
  return for_vectors_per_lane(arguments.shape, [&](auto vectors) {
    return for_bool(stochastic, [&](auto by_chance) {
      return launch_kernel(sum_encode_kernel<Format, vectors(), by_chance()>, arguments, launch);
    });
  });
}

template <class Format>
int launch_rows(const RowArguments& arguments, const Launch& launch) {
  const bool is_one = arguments.shape.vectors <= kWarp;
  return launch_kernel(is_one ? row_kernel<Format, 1> : row_kernel<Format, kMostVectors>, arguments,
                       launch);
}

template <class Format>
const FormatLaunches& format_launches() {
  static constexpr FormatLaunches kLaunches = {launch_encode<Format>,     launch_decode<Format>,
                                               launch_accumulate<Format>, launch_sum_decode<Format>,
                                               launch_sum_encode<Format>, launch_rows<Format>};
  return kLaunches;
}

}  // namespace agoq::cuda
