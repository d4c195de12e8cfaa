// What the calls of rows of both communicators make of their arguments.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "agoqcomm/types.h"
#include "collective/rows_of_call.h"

namespace agoq {

/// Elements of each rank's rows. Throws Error(kInvalidArgument) where the numbers make no matrix.
std::vector<std::int64_t> counts_of_rows(Operation operation, std::span<const std::int64_t> rows,
                                         std::int64_t width, int size);

RowsOfCall rows_of(std::span<const std::int64_t> rows, std::int64_t width, int rank);

/// Throws Error(kInvalidArgument) for a type that encoded rows cannot be decoded to.
void check_decoded_type(DataType type);

/// What stands for the encoded rows of a rank that has none: a pointer, but to nothing.
const std::byte* encoded_or_nothing(const std::byte* encoded);

}  // namespace agoq
