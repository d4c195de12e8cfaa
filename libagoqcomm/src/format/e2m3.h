// e2m3: six bits, steps of 1/8 up to 2 and a largest number of 7.5; four codes in three bytes.
#pragma once

#include "format/small_float.h"

namespace agoq {

struct E2m3 : SmallFloat<3> {};

static_assert(E2m3::kBits == 6 && E2m3::kMax == 7.5f);
static_assert(E2m3::number(1) == 0.125f && E2m3::number(9) == 1.125f && E2m3::number(63) == -7.5f);

}  // namespace agoq
