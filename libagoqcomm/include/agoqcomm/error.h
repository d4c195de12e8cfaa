// The one exception type of the library.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "agoqcomm/export.h"

namespace agoq {

enum class ErrorCode {
  kInvalidArgument,  ///< An argument is outside what the function states.
  kUnsupported,      ///< A valid request that this build, format or machine cannot serve.
  kMismatch,         ///< The ranks disagree about the call or the configuration.
  kPeerFailed,       ///< A rank died, or its connection broke.
  kTimeout,          ///< The deadline of a call passed.
  kAborted,          ///< The group was aborted or destroyed while the call ran, or failed earlier.
  kSystem,           ///< The operating system refused something (memory, sockets, files).
};

/// Name as it appears in messages, e.g. "timeout".
AGOQ_API std::string_view to_string(ErrorCode code) noexcept;

/// What every function of the library throws. what() says what was wrong and what to do about it.
class AGOQ_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, std::optional<int> peer = std::nullopt)
      : std::runtime_error(message), code_(code), peer_(peer) {}

  ErrorCode code() const noexcept { return code_; }
  /// The rank at the other end, where one is to blame.
  std::optional<int> peer() const noexcept { return peer_; }

 private:
  ErrorCode code_;
  std::optional<int> peer_;
};

}  // namespace agoq
