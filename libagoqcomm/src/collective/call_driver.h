// Drives one call to its end on the caller's thread, and says in words what went wrong.
#pragma once

#include <chrono>
#include <optional>

#include "agoqcomm/transport.h"
#include "collective/call_label.h"
#include "collective/collective.h"

namespace agoq {

/// Starts the call on the transport, with `peer` alone where there is one, and advances
/// `collective` until it ends. Adds the time it slept to `wait_seconds`.
///
/// Throws Error: kMismatch naming the peer and the field that differs, kTimeout naming the ranks
/// that are late, and the transport's own errors with the call's name in front.
void run_call(Transport& transport, Collective& collective, const CallLabel& label,
              std::optional<int> peer, std::chrono::milliseconds timeout, double& wait_seconds);

}  // namespace agoq
