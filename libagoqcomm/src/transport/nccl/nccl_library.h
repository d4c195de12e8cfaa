// NCCL's functions, found at run time. Declared here, since its header is often not there.
#pragma once

#include <cstddef>
#include <string>

namespace agoq::nccl {

// Values of ncclResult_t and ncclDataType_t, which NCCL keeps from version to version.
inline constexpr int kSuccess = 0;
inline constexpr int kRemoteError = 6;
inline constexpr int kInProgress = 7;
inline constexpr int kUint8 = 1;

/// Value type: the functions of one loaded copy, which stays loaded.
struct Library {
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void* data, std::size_t count, int type, int peer, void* communicator,
              void* stream) = nullptr;
  int (*receive)(void* data, std::size_t count, int type, int peer, void* communicator,
                 void* stream) = nullptr;
  int (*async_error)(void* communicator, int* error) = nullptr;
  int (*count)(void* communicator, int* ranks) = nullptr;
  int (*user_rank)(void* communicator, int* rank) = nullptr;
  int (*version)(int* version) = nullptr;
  const char* (*error_string)(int error) = nullptr;
  const char* (*last_error)(void* communicator) = nullptr;
  std::string path;  ///< What it was found as, for people.
};

/// Looks where make_nccl_transport() says, and throws what it says.
Library load();

}  // namespace agoq::nccl
