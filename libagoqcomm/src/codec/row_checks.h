// What every codec of rows asks of its arguments. `function` is the caller's, with its class, for
// the messages of Error(kInvalidArgument).
#pragma once

#include <string>

#include "agoqcomm/codec.h"
#include "agoqcomm/row_codec.h"
#include "agoqcomm/types.h"

namespace agoq {

[[noreturn]] void throw_row_error(const char* function, const std::string& what);

inline void require_row(bool condition, const char* function, const std::string& what) {
  if (!condition) throw_row_error(function, what);
}
void check_row_type(const char* function, DataType type);
void check_row_rounding(const char* function, const Rounding& rounding);
void check_row_pieces(const char* function, const Pieces& pieces, const void* values,
                      DataType type);
/// `encoded`, which may be null, lies at a multiple of `alignment`.
void check_row_alignment(const char* function, const std::byte* encoded, std::size_t alignment);
void check_row_epilogue(const char* function, RowShape shape, const void* values,
                        const RowEpilogue& epilogue);

}  // namespace agoq
