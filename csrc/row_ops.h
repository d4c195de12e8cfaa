// What torch has no collective for: rows that are finished while they are in cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "agoqcomm/row_codec.h"

namespace agoq {

/// RowEpilogue on tensors, of which those that are not wanted are undefined. Keeps them alive.
struct RowTensors {
  at::Tensor residual;
  at::Tensor weight;
  double epsilon = 1e-5;
  at::Tensor normed;
  at::Tensor encoded;
  Rounding rounding;
  bool norm = false;

  /// For rows like those of `like`, on its device; throws ValueError where a tensor does not fit.
  RowEpilogue core(const at::Tensor& like) const;
  /// Those that a call reads, and those that it writes, after the call's own.
  std::vector<at::Tensor> inputs(const at::Tensor& input) const;
  std::vector<at::Tensor> outputs(const at::Tensor& output) const;
};

}  // namespace agoq
