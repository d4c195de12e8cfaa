#include "collective/label_check.h"

#include "collective/message_tag.h"
#include "collective/peers.h"

namespace agoq {

void LabelCheck::post() {
  const Tag tag = message_tag(Phase::kLabel, 0);
  const std::vector<int> peers = peers_of(transport_);
  if (peers.empty()) return;
  for (const int peer : peers) receives_.add(peer, transport_.post_receive(peer, tag, 0), 0);
  sends_.push_back(transport_.post_send(nullptr, 0, peers, tag));
}

bool LabelCheck::advance() {
  if (!posted_) post();
  posted_ = true;
  receives_.poll(transport_,
                 [&](const ReceiveSet::Receive& receive) { transport_.release(receive.ticket); });
  while (!sends_.empty() && transport_.test(sends_.back())) {
    transport_.release(sends_.back());
    sends_.pop_back();
  }
  return receives_.all_complete() && sends_.empty();
}

Awaited LabelCheck::awaited() const {
  Awaited awaited;
  receives_.add_awaited(awaited);
  return awaited;
}

}  // namespace agoq
