// The launches of one format's kernels, as the format's .cu file defines them.
#pragma once

#include "agoqcomm/types.h"
#include "codec/cuda/arguments.h"
#include "codec/cuda/launch.h"

namespace agoq::cuda {

/// What launch.h declares, for one format.
struct FormatLaunches {
  int (*encode)(bool stochastic, const EncodeArguments& arguments, const Launch& launch);
  int (*decode)(DataType type, const DecodeArguments& arguments, const Launch& launch);
  int (*accumulate)(const DecodeArguments& arguments, const Launch& launch);
  int (*sum_decode)(const SumArguments& arguments, const Launch& launch);
  int (*sum_encode)(bool stochastic, const SumArguments& arguments, const Launch& launch);
  int (*rows)(const RowArguments& arguments, const Launch& launch);
};

/// Instantiated in one .cu file a format, named like the format's header, so that compilers work on
/// several formats side by side.
template <class Format>
const FormatLaunches& format_launches();

}  // namespace agoq::cuda
