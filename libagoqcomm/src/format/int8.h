// int8: a signed byte, symmetric, -127 to 127.
#pragma once

#include "format/signed_integer.h"

namespace agoq {

struct Int8 : SignedInteger<8> {};

}  // namespace agoq
