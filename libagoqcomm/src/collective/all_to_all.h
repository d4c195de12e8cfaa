// All-to-all: every ordered pair of ranks has a count of its own; gather and scatter are those
// where most of them are 0.
//
// Only the two ranks of a pair know its count, so the call's label cannot hold it. Instead a pair's
// last message is always shorter than a segment, and empty where the count is a multiple of one:
// then ranks that differ in the count differ in the length of some message, which the transport
// finds. Step 0 carries a message between every two ranks thereby, and with it the label.
//
// Send and receive are one way of one pair, and concern no other rank.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "collective/collective.h"
#include "collective/segment_exchange.h"

namespace agoq {

/// The caller's buffers. No two overlap, but in[rank] may be out[rank].
struct PairChunks {
  std::span<const void* const> in;  ///< in[r] holds in_counts[r] elements for rank r.
  std::span<const std::int64_t> in_counts;
  std::span<void* const> out;  ///< out[r] receives out_counts[r] elements from rank r.
  std::span<const std::int64_t> out_counts;
};

/// Not thread-safe. Receives are posted a window ahead of what has come, whatever becomes of the
/// sends, so that no set of ranks can deadlock.
class AllToAll final : public Collective {
 public:
  /// The exchange is exact.
  AllToAll(Transport& transport, SegmentExchange& exchange, const PairChunks& chunks,
           std::int64_t segment_numel);

  enum class Way { kOut, kIn };
  /// The one way: `count` elements at `values` go to `peer`, or come from it.
  AllToAll(Transport& transport, SegmentExchange& exchange, int peer, Way way, void* values,
           std::int64_t count, std::int64_t segment_numel);

  bool advance() override;
  Awaited awaited() const override;

 private:
  /// One direction between this rank and a peer.
  struct Stream {
    int peer;
    std::byte* values;
    std::int64_t count;
    std::int64_t posted = 0;        ///< Messages so far.
    std::deque<Ticket> receives{};  ///< Of those posted that have not come; none of a sender.
  };

  void add(std::vector<Stream>& streams, int peer, const void* values, std::int64_t count);
  std::int64_t messages(const Stream& stream) const { return stream.count / segment_numel_ + 1; }
  /// Elements of a stream's message, and where they are.
  Extent extent(const Stream& stream, std::int64_t message) const;
  void* at(const Stream& stream, std::int64_t message) const;
  bool receive(Stream& stream);
  bool send(Stream& stream);

  Transport& transport_;
  SegmentExchange& exchange_;
  const std::int64_t segment_numel_;
  std::vector<Stream> incoming_;
  std::vector<Stream> outgoing_;
};

}  // namespace agoq
