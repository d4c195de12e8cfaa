// Stochastic rounding of one block: scalar on every ISA, since drawing the numbers is most of it.
#pragma once

#include <cstdint>

#include "agoqcomm/codec.h"
#include "codec/encoded_blocks.h"

namespace agoq {

/// Encodes `block` elements. `first_element` is the index of x[0] in the call's whole buffer.
void encode_stochastic(ElementFormat format, const float* x, int block, const Rounding& rounding,
                       std::int64_t first_element, MutableEncodedBlocks out);

}  // namespace agoq
