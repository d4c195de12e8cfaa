#include "collective/exact_exchange.h"

#include <cstring>
#include <vector>

#include "collective/exact_reduce.h"
#include "collective/stopwatch.h"

namespace agoq {

Ticket ExactExchange::expect_result(int peer, std::int64_t count, Tag tag, void* out) {
  return transport_.post_receive(peer, tag, out, static_cast<std::size_t>(message_bytes(count)));
}

void ExactExchange::take_result(Ticket ticket, std::int64_t, void*) { transport_.release(ticket); }

void ExactExchange::do_send(const void* values, Extent extent, std::span<const int> peers,
                            Tag tag) {
  post_values(values, message_bytes(extent.count), peers, tag);
}

void ExactExchange::do_send_result(const void* values, Extent extent, std::span<const int> peers,
                                   Tag tag, void* out) {
  post_values(values, message_bytes(extent.count), peers, tag);
  if (out != values) std::memcpy(out, values, message_bytes(extent.count));
}

void ExactExchange::do_sum(std::span<const std::byte* const> pieces, const void* own, Extent extent,
                           void* out) {
  const Stopwatch stopwatch(stats_.sum_seconds);
  std::vector<const void*> all(pieces.begin(), pieces.end());
  all[transport_.rank()] = own;
  exact_reduce(all, extent.count, type_, op_, factor_, out);
}

void ExactExchange::do_sum_and_send(std::span<const std::byte* const> pieces, const void* own,
                                    Extent extent, void* out, std::span<const int> peers, Tag tag) {
  do_sum(pieces, own, extent, out);
  post_values(out, message_bytes(extent.count), peers, tag);
}

}  // namespace agoq
