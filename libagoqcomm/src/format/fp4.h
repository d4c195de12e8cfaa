// fp4: E2M1, which is 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives; the low nibble of a byte
// first.
#pragma once

#include "format/small_float.h"

namespace agoq {

struct Fp4 : SmallFloat<1> {};

static_assert(Fp4::kBits == 4 && Fp4::kMax == 6.0f);
static_assert(Fp4::number(1) == 0.5f && Fp4::number(5) == 3.0f && Fp4::number(15) == -6.0f);

}  // namespace agoq
