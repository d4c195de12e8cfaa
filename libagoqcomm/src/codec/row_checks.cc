#include "codec/row_checks.h"

#include "codec/argument_checks.h"

namespace agoq {

void check_row_pieces(const char* function, const Pieces& pieces, const void* values,
                      DataType type) {
  const auto ranks = static_cast<int>(pieces.encoded.size());
  require(ranks >= 1, function, "there are no pieces to sum");
  const bool owned = pieces.own != nullptr;
  require(owned ? pieces.own_rank >= 0 && pieces.own_rank < ranks : pieces.own_rank == -1, function,
          "own_rank is ", pieces.own_rank, "; it must be the owner's place among the ", ranks,
          " pieces, or -1 where `own` is null");
  if (owned) check_type(function, pieces.own_type, "an owner's piece");
  require(values == nullptr || values != pieces.own || type == pieces.own_type, function,
          "the sum can replace the owner's piece only where both have one type");
  for (int rank = 0; rank < ranks; ++rank) {
    require(rank == pieces.own_rank || pieces.encoded[rank] != nullptr, function,
            "the piece of rank ", rank, " is null");
  }
}

void check_row_epilogue(const char* function, RowShape shape, const void* values,
                        const RowEpilogue& epilogue) {
  require(values != nullptr || epilogue.normed != nullptr || epilogue.encoded.data != nullptr,
          function, "there is no output: all of them are null");
  require(epilogue.normed == nullptr || epilogue.norm, function,
          "there is memory for normed rows, but no norm");
  const EncodedRows& encoded = epilogue.encoded;
  const std::int64_t end = encoded.first + shape.rows;
  require(encoded.data == nullptr || (encoded.first >= 0 && end <= encoded.rows), function, "rows ",
          encoded.first, " to ", end, " do not lie within the ", encoded.rows, " encoded ones");
  check_rounding(function, epilogue.rounding);
}

}  // namespace agoq
