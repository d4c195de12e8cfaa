#include "collective/row_exchange.h"

#include <cstring>

#include "collective/rounding_stage.h"
#include "collective/stopwatch.h"

namespace agoq {
std::int64_t RowExchange::message_bytes(std::int64_t count) const {
  return RowLayout(codec_.format(), of_.shape(count)).total_bytes();
}

void RowExchange::do_sum(const Summands& summands, Extent extent, void* out) {
  const Stopwatch stopwatch(stats_.sum_seconds);
  codec_.sum_decode(pieces_of(summands), of_.shape(extent.count), factor(), out, type(),
                    epilogue_from(of_, of_.own_row(extent.first_element), type()));
}

void RowExchange::encode(const void* values, Extent extent, std::byte* encoded) const {
  if (of_.encoded == nullptr) {
    codec_.encode(values, type(), of_.shape(extent.count), encoded, rounding(kPieceStage, extent));
    return;
  }
  const RowLayout chunk(codec_.format(), {of_.rows, of_.width});
  const RowLayout segment(codec_.format(), of_.shape(extent.count));
  const std::int64_t row = of_.own_row(extent.first_element);
  std::memset(encoded + segment.code_bytes(), 0,
              static_cast<std::size_t>(segment.scale_offset() - segment.code_bytes()));
  std::memcpy(encoded, of_.encoded + row * chunk.row_code_bytes(),
              static_cast<std::size_t>(segment.code_bytes()));
  std::memcpy(encoded + segment.scale_offset(),
              of_.encoded + chunk.scale_offset() + row * chunk.row_scale_bytes(),
              static_cast<std::size_t>(segment.rows() * segment.row_scale_bytes()));
}

void RowExchange::decode(const std::byte* encoded, std::int64_t count, void* values,
                         CacheUse use) const {
  codec_.decode(encoded, of_.shape(count), values, type(), use);
}

void RowExchange::sum_decode(const Pieces& pieces, Extent extent, float factor, void* values,
                             DataType type) const {
  codec_.sum_decode(pieces, of_.shape(extent.count), factor, values, type);
}

void RowExchange::sum_encode(const Pieces& pieces, Extent extent, float factor, std::byte* encoded,
                             void* values, const Rounding& rounding) const {
  codec_.sum_encode(pieces, of_.shape(extent.count), factor, encoded, values, type(), rounding);
}

void ExactRowExchange::do_sum(const Summands& summands, Extent extent, void* out) {
  ExactExchange::do_sum(summands, extent, out);
  if (of_.epilogue.empty()) return;
  const Stopwatch stopwatch(stats_.sum_seconds);
  codec_.apply(out, type_, of_.shape(extent.count), out,
               epilogue_from(of_, of_.own_row(extent.first_element), type_));
}

}  // namespace agoq
