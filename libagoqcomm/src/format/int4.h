// int4: a signed nibble, symmetric, -7 to 7; the low nibble of a byte first.
#pragma once

#include "format/signed_integer.h"

namespace agoq {

struct Int4 : SignedInteger<4> {};

}  // namespace agoq
