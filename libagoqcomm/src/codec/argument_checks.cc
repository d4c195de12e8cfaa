#include "codec/argument_checks.h"

#include "agoqcomm/error.h"
#include "codec/overlap.h"

namespace agoq {

void throw_invalid(const char* function, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, std::string(function) + ": " + what);
}

void check_type(const char* function, DataType type, const char* whose) {
  require(is_encodable(type), function, whose, " of type ", to_string(type),
          " cannot be encoded; use float32, bfloat16 or float16");
}

void check_count(const char* function, std::int64_t count) {
  require(count >= 0, function, "count is ", count, "; it must be 0 or more");
}

void check_values(const char* function, const void* values, std::int64_t count) {
  check_count(function, count);
  require(values != nullptr || count == 0, function, "the buffer of elements is null");
}

void check_alignment(const char* function, const std::byte* encoded, std::size_t alignment) {
  require(reinterpret_cast<std::uintptr_t>(encoded) % alignment == 0, function,
          "the buffer of encoded bytes must be aligned to ", alignment);
}

void check_encoded(const char* function, const std::byte* encoded, std::int64_t count) {
  require(encoded != nullptr || count == 0, function, "the buffer of encoded bytes is null");
  check_alignment(function, encoded, 4);
}

void check_rounding(const char* function, const Rounding& rounding) {
  if (!rounding.stochastic) return;
  require(rounding.rank < 1u << 24, function, "Rounding.rank must be below 2^24");
  require(rounding.stage < 1u << 8, function, "Rounding.stage must be below 2^8");
  require(rounding.first_element >= 0, function, "Rounding.first_element must be 0 or more");
}

void check_replaced(const char* function, std::span<const std::byte* const> pieces, int own_rank,
                    const std::byte* encoded, std::int64_t bytes) {
  for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
    if (static_cast<int>(rank) == own_rank) continue;
    require(!overlaps_in_part(encoded, pieces[rank], bytes), function,
            "the buffer of encoded bytes overlaps a part of piece ", rank,
            "; it may be all of a piece's memory, or none of it");
  }
}

}  // namespace agoq
