// From the core's errors to those that torch.distributed's callers expect.
#pragma once

#include <exception>
#include <string>

namespace agoq {

/// A torch.distributed.DistBackendError.
[[noreturn]] void throw_backend_error(const std::string& message);
/// A torch.distributed.DistNetworkError.
[[noreturn]] void throw_network_error(const std::string& message);
/// The torch error for an agoq::Error; any other exception as it is.
std::exception_ptr to_torch_error(const std::exception_ptr& error);
/// First line of what() of any exception; torch appends a C++ stack trace after it.
std::string first_line(const std::exception_ptr& error);

}  // namespace agoq
