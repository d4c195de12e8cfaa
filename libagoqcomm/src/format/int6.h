// int6: six signed bits, symmetric, -31 to 31; four codes in three bytes.
#pragma once

#include "format/signed_integer.h"

namespace agoq {

struct Int6 : SignedInteger<6> {};

}  // namespace agoq
