#include "collective/one_shot_all_reduce.h"

#include "collective/message_tag.h"
#include "collective/peers.h"

namespace agoq {
namespace {

// What a rank may send in one shot; docs/transports.md has the measurements. Two ranks send as much
// in two phases, so that only the longer sum weighs against the latency saved. More ranks send p/2
// times as much as in two phases; counting what goes to all of them together keeps that small.
constexpr std::int64_t kMostOverSockets = 128 << 10;
constexpr std::int64_t kMost = 96 << 10;

}  // namespace

bool is_one_shot(std::string_view transport, int size, std::int64_t bytes) {
  return bytes * (size - 1) <= (transport == "tcp" ? kMostOverSockets : kMost);
}

bool OneShotAllReduce::advance() {
  if (!posted_) post();
  posted_ = true;
  pieces_.poll(transport_, [](const ReceiveSet::Receive&) {});
  // The sum may overwrite what is being sent.
  if (!exchange_.sends_complete() || !pieces_.all_complete()) return false;
  if (!summed_) exchange_.sum(pieces_, in_, extent_, out_);
  summed_ = true;
  return true;
}

Awaited OneShotAllReduce::awaited() const {
  Awaited awaited;
  pieces_.add_awaited(awaited);
  return awaited;
}

void OneShotAllReduce::post() {
  const Tag tag = message_tag(Phase::kPiece, 0);
  const std::vector<int> peers = peers_of(transport_);
  for (const int peer : peers) {
    pieces_.add(peer, exchange_.expect_piece(peer, extent_.count, tag),
                exchange_.message_bytes(extent_.count));
  }
  exchange_.send_piece(in_, extent_, peers, tag);
}

}  // namespace agoq
