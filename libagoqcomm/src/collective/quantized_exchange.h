// Segments as encoded bytes.
#pragma once

#include "agoqcomm/codec.h"
#include "collective/segment_exchange.h"

namespace agoq {

/// How others' results of a call with `bytes` of output in the caller's type are best stored. What
/// an all-reduce overwrites it read a few segments ago, so it is in cache as a rule; what an
/// all-gather overwrites is not.
CacheUse cache_use_of_results(Operation operation, std::int64_t bytes);

/// Not thread-safe.
class QuantizedExchange : public SegmentExchange {
 public:
  /// `rounding` holds what does not change within the call; `factor` scales every sum. `results`
  /// is for take_result().
  QuantizedExchange(Transport& transport, OperationStats& stats, const Topology& topology,
                    const Codec& codec, DataType type, float factor, const Rounding& rounding,
                    CacheUse results)
      : SegmentExchange(transport, stats, topology),
        codec_(codec),
        type_(type),
        factor_(factor),
        rounding_(rounding),
        results_(results) {}

  std::int64_t message_bytes(std::int64_t count) const override;
  std::int64_t value_bytes(std::int64_t count) const override;
  bool uses_send_buffers() const override { return true; }
  Ticket expect_result(int peer, std::int64_t count, Tag tag, void* out) override;
  void take_result(Ticket ticket, std::int64_t count, void* out) override;

 protected:
  void do_send(const void* values, Extent extent, std::span<const int> peers, Tag tag) override;
  void do_send_result(const void* values, Extent extent, std::span<const int> peers, Tag tag,
                      void* out) override;
  void do_forward_result(Ticket ticket, Extent extent, void* out, std::span<const int> peers,
                         Tag tag) override;
  void do_sum(const Summands& summands, Extent extent, void* out) override;
  void do_sum_and_send(const Summands& summands, Extent extent, void* out,
                       std::span<const int> peers, Tag tag) override;
  const void* do_node_sum(const Summands& summands, Extent extent) override;
  void do_send_node_sum(const Summands& summands, Extent extent, int peer, Tag tag) override;

  // What a segment's bytes are. RowExchange has other ones.
  virtual void encode(const void* values, Extent extent, std::byte* encoded) const;
  virtual void decode(const std::byte* encoded, std::int64_t count, void* values,
                      CacheUse use) const;
  virtual void sum_decode(const Pieces& pieces, Extent extent, float factor, void* values,
                          DataType type) const;
  virtual void sum_encode(const Pieces& pieces, Extent extent, float factor, std::byte* encoded,
                          void* values, const Rounding& rounding) const;

  Rounding rounding(std::uint32_t stage, Extent extent) const;
  Pieces pieces_of(const Summands& summands) const;

  DataType type() const { return type_; }
  float factor() const { return factor_; }

 private:
  const Codec& codec_;
  DataType type_;
  float factor_;
  Rounding rounding_;
  CacheUse results_;
  std::vector<float> node_sum_;
};

}  // namespace agoq
