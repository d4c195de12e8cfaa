// One running collective call, as a state machine that any thread can drive.
#pragma once

#include <cstdint>
#include <map>

namespace agoq {

/// Bytes that have not come yet, by the rank they must come from.
using Awaited = std::map<int, std::int64_t>;

/// Not thread-safe. The caller's buffers must outlive it.
class Collective {
 public:
  virtual ~Collective() = default;

  /// Does what can be done without waiting for a peer; true once the call has ended on this rank.
  /// Throws what the transport throws.
  virtual bool advance() = 0;

  /// What the oldest open step waits for, for messages about a peer that is late. Empty where only
  /// own sends are still on their way.
  virtual Awaited awaited() const = 0;
};

}  // namespace agoq
