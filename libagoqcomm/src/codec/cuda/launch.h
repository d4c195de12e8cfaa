// Host functions that start the kernels, one a kernel family. They return CUDA's error, 0 for
// success, and nothing of CUDA's own headers is needed to call them.
#pragma once

#include "agoqcomm/block_format.h"
#include "agoqcomm/types.h"
#include "codec/cuda/arguments.h"

namespace agoq::cuda {

struct Launch {
  unsigned thread_blocks;  ///< A segment.
  unsigned segments;
  void* stream;
};

int launch_encode(ElementFormat format, bool stochastic, const EncodeArguments& arguments,
                  const Launch& launch);
int launch_decode(ElementFormat format, DataType type, const DecodeArguments& arguments,
                  const Launch& launch);
int launch_accumulate(ElementFormat format, const DecodeArguments& arguments, const Launch& launch);
int launch_sum_decode(ElementFormat format, const SumArguments& arguments, const Launch& launch);
int launch_sum_encode(ElementFormat format, bool stochastic, const SumArguments& arguments,
                      const Launch& launch);
int launch_rows(ElementFormat format, const RowArguments& arguments, const Launch& launch);

/// false in builds without CUDA, where the functions above do nothing.
bool is_built() noexcept;
int device_count() noexcept;
const char* error_text(int error) noexcept;

}  // namespace agoq::cuda
