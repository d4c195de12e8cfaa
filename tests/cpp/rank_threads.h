// Ranks of a test of transports as threads of this process.
#pragma once

#include <barrier>
#include <functional>
#include <limits>
#include <memory>

#include "transport_group.h"

namespace agoq::test {

/// What one rank of a test holds. Its transport lives until all bodies have ended, unless the body
/// destroys it.
struct Member {
  std::unique_ptr<Transport> transport;
  std::function<void()> meet;  ///< Waits for all ranks; each has to call it equally often.
};

/// The most ranks that run_members() can give.
inline int ranks_at_hand() { return std::numeric_limits<int>::max(); }

/// Runs body on one thread for each rank of a new group.
inline void run_members(Kind kind, int size, const std::function<void(Member&)>& body,
                        const TransportConfig& config = {}) {
  std::barrier meeting(size);
  std::vector<Member> members;
  for (auto& transport : make_group(kind, size, config)) {
    members.push_back({std::move(transport), [&meeting] { meeting.arrive_and_wait(); }});
  }
  run_threads(size, [&](int rank) {
    try {
      body(members[static_cast<std::size_t>(rank)]);
    } catch (...) {
      meeting.arrive_and_drop();
      throw;
    }
  });
}

}  // namespace agoq::test
