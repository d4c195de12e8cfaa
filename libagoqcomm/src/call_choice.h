// Whether a call is quantized where it says so itself.
#pragma once

#include <optional>

#include "agoqcomm/options.h"

namespace agoq {

/// The options as a call sees them: `quantize`, where set, instead of what they select.
inline Options chosen(Options options, std::optional<bool> quantize) {
  if (!quantize) return options;
  options.quantize_all_reduce = *quantize;
  options.quantize_reduce_scatter = *quantize;
  options.quantize_all_gather = *quantize;
  return options;
}

}  // namespace agoq
