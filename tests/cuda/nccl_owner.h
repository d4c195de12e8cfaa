// NCCL communicators as a framework makes them, for the checks on a device. Needs no header of
// NCCL.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace agoq::testing {

struct UniqueId {
  char bytes[128];
};
struct NcclOwner {
  int (*version)(int*);
  int (*unique_id)(UniqueId*);
  int (*init_rank)(void**, int, UniqueId, int);
  int (*destroy)(void*);
};

inline NcclOwner find_nccl() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW);
  if (library == nullptr) {
    const char* path = std::getenv("AGOQ_NCCL_PATH");
    if (path != nullptr) library = dlopen(path, RTLD_NOW);
  }
  if (library == nullptr) throw std::runtime_error("no NCCL; set AGOQ_NCCL_PATH");
  NcclOwner owner{};
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) throw std::runtime_error(std::string("NCCL has no ") + name);
  };
  find(owner.version, "ncclGetVersion");
  find(owner.unique_id, "ncclGetUniqueId");
  find(owner.init_rank, "ncclCommInitRank");
  find(owner.destroy, "ncclCommDestroy");
  return owner;
}

/// A communicator for each rank, all on the current device.
inline std::vector<void*> init_all(const NcclOwner& nccl, int size) {
  UniqueId id;
  if (nccl.unique_id(&id) != 0) throw std::runtime_error("ncclGetUniqueId failed");
  std::vector<void*> communicators(static_cast<std::size_t>(size));
  std::vector<int> results(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      const auto at = static_cast<std::size_t>(r);
      results[at] = nccl.init_rank(&communicators[at], size, id, r);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int result : results) {
    if (result != 0) throw std::runtime_error("ncclCommInitRank failed");
  }
  return communicators;
}

}  // namespace agoq::testing
