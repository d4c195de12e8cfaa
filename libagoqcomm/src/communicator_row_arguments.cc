#include "communicator_row_arguments.h"

#include <numeric>
#include <string>

#include "agoqcomm/codec.h"
#include "agoqcomm/error.h"
#include "call_arguments.h"

namespace agoq {

std::vector<std::int64_t> counts_of_rows(Operation operation, std::span<const std::int64_t> rows,
                                         std::int64_t width, int size) {
  if (width < 1 || width > kMaxRowWidth) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(to_string(operation)) + ": a row has " + std::to_string(width) +
                    " elements; it must have 1 to " + std::to_string(kMaxRowWidth));
  }
  check_counts(operation, rows, size);
  std::vector<std::int64_t> counts;
  for (const std::int64_t of_rank : rows) counts.push_back(of_rank * width);
  return counts;
}

RowsOfCall rows_of(std::span<const std::int64_t> rows, std::int64_t width, int rank) {
  RowsOfCall result;
  result.width = width;
  result.first_row = std::accumulate(rows.begin(), rows.begin() + rank, std::int64_t{0});
  result.rows = rows[rank];
  return result;
}

void check_decoded_type(DataType type) {
  if (is_encodable(type)) return;
  throw Error(ErrorCode::kInvalidArgument,
              "all_gather: encoded rows decode to float32, bfloat16 or float16, not to " +
                  std::string(to_string(type)));
}

const std::byte* encoded_or_nothing(const std::byte* encoded) {
  static constexpr std::byte kNothing{};
  return encoded == nullptr ? &kNothing : encoded;
}

}  // namespace agoq
