#include "codec/row_checks.h"

#include "agoqcomm/error.h"

namespace agoq {

void throw_row_error(const char* function, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, std::string(function) + ": " + what);
}

void check_row_type(const char* function, DataType type) {
  require_row(is_encodable(type), function,
              "elements of type " + std::string(to_string(type)) +
                  " cannot be encoded; use float32, bfloat16 or float16");
}

void check_row_rounding(const char* function, const Rounding& rounding) {
  if (!rounding.stochastic) return;
  require_row(rounding.rank < 1u << 24, function, "Rounding.rank must be below 2^24");
  require_row(rounding.stage < 1u << 8, function, "Rounding.stage must be below 2^8");
  require_row(rounding.first_element >= 0, function, "Rounding.first_element must be 0 or more");
}

void check_row_pieces(const char* function, const Pieces& pieces, const void* values,
                      DataType type) {
  const auto ranks = static_cast<int>(pieces.encoded.size());
  require_row(ranks >= 1, function, "there are no pieces to sum");
  const bool owned = pieces.own != nullptr;
  require_row(owned ? pieces.own_rank >= 0 && pieces.own_rank < ranks : pieces.own_rank == -1,
              function,
              "own_rank is " + std::to_string(pieces.own_rank) +
                  "; it must be the owner's place among the " + std::to_string(ranks) +
                  " pieces, or -1 where `own` is null");
  if (owned) check_row_type(function, pieces.own_type);
  require_row(values == nullptr || values != pieces.own || type == pieces.own_type, function,
              "the sum can replace the owner's piece only where both have one type");
  for (int rank = 0; rank < ranks; ++rank) {
    require_row(rank == pieces.own_rank || pieces.encoded[rank] != nullptr, function,
                "the piece of rank " + std::to_string(rank) + " is null");
  }
}

void check_row_alignment(const char* function, const std::byte* encoded, std::size_t alignment) {
  require_row(reinterpret_cast<std::uintptr_t>(encoded) % alignment == 0, function,
              "the buffer of encoded bytes must be aligned to " + std::to_string(alignment));
}

void check_row_epilogue(const char* function, RowShape shape, const void* values,
                        const RowEpilogue& epilogue) {
  require_row(values != nullptr || epilogue.normed != nullptr || epilogue.encoded.data != nullptr,
              function, "there is no output: all of them are null");
  require_row(epilogue.normed == nullptr || epilogue.norm, function,
              "there is memory for normed rows, but no norm");
  const EncodedRows& encoded = epilogue.encoded;
  require_row(
      encoded.data == nullptr || (encoded.first >= 0 && encoded.first + shape.rows <= encoded.rows),
      function,
      "rows " + std::to_string(encoded.first) + " to " +
          std::to_string(encoded.first + shape.rows) + " do not lie within the " +
          std::to_string(encoded.rows) + " encoded ones");
  check_row_rounding(function, epilogue.rounding);
}

}  // namespace agoq
