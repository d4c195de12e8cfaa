// Messages that one step expects, each told from the others by a key of the algorithm's choice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "agoqcomm/transport.h"
#include "collective/collective.h"

namespace agoq {

/// Not thread-safe.
class ReceiveSet {
 public:
  struct Receive {
    int peer;
    Ticket ticket;
    std::int64_t bytes;
    int key;  ///< Where a piece stands in its sum; which chunk a result is.
    bool complete = false;
  };

  void add(int peer, Ticket ticket, std::int64_t bytes) { add(peer, ticket, bytes, peer); }
  void add(int peer, Ticket ticket, std::int64_t bytes, int key) {
    receives_.push_back({peer, ticket, bytes, key});
  }

  /// Tests what is outstanding, whichever came first, and calls on_complete(receive) for each that
  /// has just completed. True where any has.
  template <typename OnComplete>
  bool poll(Transport& transport, OnComplete&& on_complete) {
    bool progress = false;
    for (Receive& receive : receives_) {
      if (receive.complete || !transport.test(receive.ticket)) continue;
      receive.complete = true;
      progress = true;
      on_complete(receive);
    }
    return progress;
  }

  bool all_complete() const {
    return std::all_of(receives_.begin(), receives_.end(),
                       [](const Receive& receive) { return receive.complete; });
  }
  bool empty() const { return receives_.empty(); }
  const std::vector<Receive>& receives() const { return receives_; }

  void add_awaited(Awaited& awaited) const {
    for (const Receive& receive : receives_) {
      if (!receive.complete) awaited[receive.peer] += receive.bytes;
    }
  }

 private:
  std::vector<Receive> receives_;
};

}  // namespace agoq
