// Segments of whole rows: encoded with blocks that end with their row, and finished as the caller
// asks once they are summed.
#pragma once

#include "agoqcomm/row_codec.h"
#include "collective/exact_exchange.h"
#include "collective/quantized_exchange.h"
#include "collective/rows_of_call.h"

namespace agoq {

/// Not thread-safe.
class RowExchange final : public QuantizedExchange {
 public:
  /// As QuantizedExchange.
  RowExchange(Transport& transport, OperationStats& stats, const Topology& topology,
              const Codec& codec, const RowCodec& rows, DataType type, float factor,
              const Rounding& rounding, CacheUse results, RowsOfCall of)
      : QuantizedExchange(transport, stats, topology, codec, type, factor, rounding, results),
        codec_(rows),
        of_(of) {}

  std::int64_t message_bytes(std::int64_t count) const override;

 protected:
  void do_sum(const Summands& summands, Extent extent, void* out) override;
  void encode(const void* values, Extent extent, std::byte* encoded) const override;
  void decode(const std::byte* encoded, std::int64_t count, void* values,
              CacheUse use) const override;
  void sum_decode(const Pieces& pieces, Extent extent, float factor, void* values,
                  DataType type) const override;
  void sum_encode(const Pieces& pieces, Extent extent, float factor, std::byte* encoded,
                  void* values, const Rounding& rounding) const override;

 private:
  const RowCodec& codec_;
  const RowsOfCall of_;
};

/// The same where the call is exact. Not thread-safe.
class ExactRowExchange final : public ExactExchange {
 public:
  /// As ExactExchange.
  ExactRowExchange(Transport& transport, OperationStats& stats, const Topology& topology,
                   const RowCodec& rows, DataType type, ReduceOp op, float factor, RowsOfCall of)
      : ExactExchange(transport, stats, topology, type, op, factor),
        codec_(rows),
        type_(type),
        of_(of) {}

 protected:
  /// The sum is rounded to the type as every exact one, before the residual is added.
  void do_sum(const Summands& summands, Extent extent, void* out) override;

 private:
  const RowCodec& codec_;
  const DataType type_;
  const RowsOfCall of_;
};

}  // namespace agoq
