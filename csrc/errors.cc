#include "errors.h"

#include <c10/util/Exception.h>

#include "agoqcomm/error.h"

namespace agoq {
namespace {

template <typename TorchError>
std::exception_ptr make(const std::string& message) {
  return std::make_exception_ptr(TorchError(
      c10::SourceLocation{__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, message));
}

}  // namespace

void throw_backend_error(const std::string& message) {
  std::rethrow_exception(make<c10::DistBackendError>(message));
}

void throw_network_error(const std::string& message) {
  std::rethrow_exception(make<c10::DistNetworkError>(message));
}

std::exception_ptr to_torch_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& core) {
    const std::string prefix = "agoq: ";
    std::string text = core.what();
    if (text.compare(0, prefix.size(), prefix) != 0) text = prefix + text;
    switch (core.code()) {
      case ErrorCode::kInvalidArgument:
        return make<c10::ValueError>(text);
      case ErrorCode::kUnsupported:
        return make<c10::NotImplementedError>(text);
      case ErrorCode::kPeerFailed:
        return make<c10::DistNetworkError>(text);
      case ErrorCode::kTimeout:
        // Tools look for these two words to tell a timeout from other failures.
        if (text.find(" Timed out ") == std::string::npos) text += " ( Timed out )";
        return make<c10::DistBackendError>(text);
      case ErrorCode::kMismatch:
      case ErrorCode::kAborted:
      case ErrorCode::kSystem:
        return make<c10::DistBackendError>(text);
    }
    return error;
  } catch (...) {
    return error;
  }
}

std::string first_line(const std::exception_ptr& error) {
  std::string text = "an exception of unknown type";
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    text = e.what_without_backtrace();
  } catch (const std::exception& e) {
    text = e.what();
  } catch (...) {
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace agoq
