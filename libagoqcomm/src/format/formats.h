// What the table in formats.def says, for code that knows a format by its enumerator.
#pragma once

#include "agoqcomm/block_format.h"
#include "format/e2m3.h"
#include "format/fp4.h"
#include "format/int4.h"
#include "format/int6.h"
#include "format/int8.h"

namespace agoq {

struct FormatInfo {
  ElementFormat format;
  const char* name;
  int bits;
};

inline constexpr FormatInfo kFormats[] = {
#define AGOQ_FORMAT(enumerator, name, bits, type) {ElementFormat::enumerator, name, bits},
#include "format/formats.def"
#undef AGOQ_FORMAT
};

#define AGOQ_FORMAT(enumerator, name, bits, type)                                                \
  static_assert(type::kBits == (bits), "formats.def and the format's header disagree");          \
  static_assert(kMinBlock * (bits) % 8 == 0, "a whole block must fill whole bytes");             \
  static_assert(                                                                                 \
      kFormats[static_cast<int>(ElementFormat::enumerator)].format == ElementFormat::enumerator, \
      "formats.def must follow the order of ElementFormat");
#include "format/formats.def"
#undef AGOQ_FORMAT

/// Null for a value that is no enumerator.
constexpr const FormatInfo* find_format(ElementFormat format) noexcept {
  for (const FormatInfo& info : kFormats) {
    if (info.format == format) return &info;
  }
  return nullptr;
}

}  // namespace agoq
