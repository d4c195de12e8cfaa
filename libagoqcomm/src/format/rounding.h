// From a real number to one of its two neighbouring integers.
#pragma once

#include <cstdint>

#include "format/float_bits.h"

namespace agoq {

/// Half to even, for |x| <= 2^22. Adding 1.5 * 2^23 leaves no bits below the unit.
AGOQ_HD std::int32_t round_half_even(float x) {
  return static_cast<std::int32_t>(bits(add(x, 0x1.8p23f))) -
         static_cast<std::int32_t>(bits(0x1.8p23f));
}

/// Up when `uniform`, in [0, 1), is less than the distance to the integer below; for |x| < 2^31.
AGOQ_HD std::int32_t round_stochastic(float x, float uniform) {
  std::int32_t below = static_cast<std::int32_t>(x);
  if (static_cast<float>(below) > x) --below;
  return uniform < add(x, -static_cast<float>(below)) ? below + 1 : below;
}

}  // namespace agoq
