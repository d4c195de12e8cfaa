// What every codec of rows asks of its arguments, beside argument_checks.h.
#pragma once

#include "agoqcomm/codec.h"
#include "agoqcomm/row_codec.h"
#include "agoqcomm/types.h"

namespace agoq {

void check_row_pieces(const char* function, const Pieces& pieces, const void* values,
                      DataType type);
void check_row_epilogue(const char* function, RowShape shape, const void* values,
                        const RowEpilogue& epilogue);

}  // namespace agoq
