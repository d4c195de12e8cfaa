// Errors of the operating system as agoq::Error.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include "agoqcomm/error.h"

namespace agoq {

/// strerror, without its shared buffer.
inline std::string error_text(int error) { return std::generic_category().message(error); }

/// Throws Error(kSystem, "<what>: <reason>") for errno, or for `error` where it is given.
[[noreturn]] inline void throw_system(const std::string& what, int error = errno) {
  throw Error(ErrorCode::kSystem, what + ": " + error_text(error));
}

/// True for what a non-blocking call says when it has to be made again later.
inline bool is_retry(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace agoq
