#include "collective/call_driver.h"

#include <string>

#include "agoqcomm/error.h"
#include "collective/stopwatch.h"

namespace agoq {
namespace {

// "rank 1 (8320 bytes), rank 3 (8320 bytes)"
std::string describe(const Awaited& awaited) {
  std::string text;
  for (const auto& [peer, bytes] : awaited) {
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(peer) + " (" +
            std::to_string(bytes) + " bytes)";
  }
  return text;
}

Error timed_out(const std::string& call, const Awaited& awaited,
                std::chrono::milliseconds timeout) {
  const std::string start = call + ": Timed out after " + std::to_string(timeout.count()) + " ms ";
  if (awaited.empty()) {
    return Error(ErrorCode::kTimeout,
                 start + "with all bytes received, before the peers took what was sent to them");
  }
  return Error(
      ErrorCode::kTimeout,
      start + "waiting for " + describe(awaited) + "; see why it is late, or raise the timeout",
      awaited.begin()->first);
}

Error with_call_named(const std::string& call, const std::string& progress, const Error& error) {
  return Error(error.code(), call + ": " + error.what() + "; " + progress, error.peer());
}

std::string progress_of(bool begun, const Awaited& awaited) {
  if (!begun) return "no bytes had been sent yet";
  if (awaited.empty()) return "no bytes were still to come";
  return "still to come were messages of " + describe(awaited);
}

}  // namespace

void run_call(Transport& transport, Collective& collective, const CallLabel& label,
              std::optional<int> peer, std::chrono::milliseconds timeout, double& wait_seconds) {
  // Spelt out only where something went wrong: the words cost as much as a small call.
  const auto name = [&] {
    return label.describe() + ", on rank " + std::to_string(transport.rank());
  };
  const Clock::time_point start = Clock::now();
  // A timeout that the clock cannot represent is none.
  const bool endless = timeout >= std::chrono::hours(24 * 365 * 100);
  const Clock::time_point deadline = endless ? Clock::time_point::max() : start + timeout;
  bool begun = false;
  try {
    if (peer) {
      transport.begin_pair_call(label.pack(), *peer);
    } else {
      transport.begin_call(label.pack());
    }
    begun = true;
    while (!collective.advance()) {
      if (Clock::now() >= deadline) throw timed_out(name(), collective.awaited(), timeout);
      const Stopwatch stopwatch(wait_seconds);
      transport.wait(deadline);
    }
  } catch (const LabelMismatch& mismatch) {
    throw Error(ErrorCode::kMismatch,
                describe_difference(transport.rank(), CallLabel::unpack(mismatch.own),
                                    mismatch.peer, CallLabel::unpack(mismatch.theirs)),
                mismatch.peer);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kTimeout) throw;
    throw with_call_named(name(), progress_of(begun, collective.awaited()), error);
  }
}

}  // namespace agoq
