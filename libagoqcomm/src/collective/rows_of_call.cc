#include "collective/rows_of_call.h"

namespace agoq {

RowEpilogue epilogue_from(const RowsOfCall& of, std::int64_t row, DataType type) {
  const std::int64_t elements = row * of.width;
  const std::int64_t bytes = elements * static_cast<std::int64_t>(size_of(type));
  RowEpilogue part = of.epilogue;
  if (part.residual != nullptr)
    part.residual = static_cast<const std::byte*>(part.residual) + bytes;
  if (part.normed != nullptr) part.normed = static_cast<std::byte*>(part.normed) + bytes;
  part.encoded.first += row;
  part.rounding.first_element += elements;
  return part;
}

}  // namespace agoq
