#include "transport/nccl/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "agoqcomm/error.h"

namespace agoq::nccl {
namespace {

constexpr const char* kFile = "libnccl.so.2";
constexpr const char* kPathVariable = "AGOQ_NCCL_PATH";
constexpr int kOldestVersion = 21300;  // The first whose ncclGetLastError() tells why.

struct Handle {
  void* handle;
  std::string path;
};

Handle open() {
  // The copy that made the caller's communicator, usually torch's.
  if (void* handle = dlopen(kFile, RTLD_NOW | RTLD_NOLOAD))
    return {handle, "the loaded " + std::string(kFile)};
  const char* path = std::getenv(kPathVariable);
  const bool is_named = path != nullptr && *path != '\0';
  const char* file = is_named ? path : kFile;
  if (void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL)) return {handle, file};
  const char* reason = dlerror();
  throw Error(ErrorCode::kUnsupported,
              "NCCL cannot be loaded: " + std::string(reason == nullptr ? file : reason) +
                  (is_named ? "; AGOQ_NCCL_PATH names that file"
                            : "; set AGOQ_NCCL_PATH to its libnccl.so.2"));
}

template <typename Function>
void find(const Handle& from, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(from.handle, name));
  if (function != nullptr) return;
  throw Error(ErrorCode::kUnsupported,
              "NCCL (" + from.path + ") has no " + name + "; version 2.13 or later is needed");
}

}  // namespace

Library load() {
  const Handle handle = open();
  Library library;
  library.path = handle.path;
  find(handle, "ncclGetVersion", library.version);
  int version = 0;
  library.version(&version);
  if (version < kOldestVersion) {
    throw Error(ErrorCode::kUnsupported,
                "NCCL (" + handle.path + ") calls itself version " + std::to_string(version) +
                    "; " + std::to_string(kOldestVersion) + " (2.13) or later is needed");
  }
  find(handle, "ncclGroupStart", library.group_start);
  find(handle, "ncclGroupEnd", library.group_end);
  find(handle, "ncclSend", library.send);
  find(handle, "ncclRecv", library.receive);
  find(handle, "ncclCommGetAsyncError", library.async_error);
  find(handle, "ncclCommCount", library.count);
  find(handle, "ncclCommUserRank", library.user_rank);
  find(handle, "ncclGetErrorString", library.error_string);
  find(handle, "ncclGetLastError", library.last_error);
  return library;
}

}  // namespace agoq::nccl
