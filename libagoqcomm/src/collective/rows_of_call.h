// What a call of rows is on this rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include "agoqcomm/row_codec.h"
#include "agoqcomm/types.h"

namespace agoq {

struct RowsOfCall {
  std::int64_t width = 0;
  /// The rank's own chunk: where it starts in the whole buffer, and how many rows it has.
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  /// Of the own chunk, once it is summed.
  RowEpilogue epilogue;
  /// The own chunk as encoded rows, which then travel as they are; or null.
  const std::byte* encoded = nullptr;

  RowShape shape(std::int64_t count) const { return {count / width, width}; }
  /// Row of the own chunk that an element of the whole buffer begins.
  std::int64_t own_row(std::int64_t first_element) const {
    return first_element / width - first_row;
  }
};

/// The epilogue of the own chunk's rows from `row` on.
RowEpilogue epilogue_from(const RowsOfCall& of, std::int64_t row, DataType type);

}  // namespace agoq
