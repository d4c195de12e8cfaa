#include "transport/mesh/host_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "agoqcomm/topology.h"

namespace agoq {

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network{};
  const bool known = ::stat("/proc/self/ns/net", &network) == 0;
  // Without /proc there is no telling two hosts of one name apart, so each process is its own.
  if (boot.empty() || !known) return "process " + std::to_string(::getpid()) + " " + boot;
  return boot + "/" + std::to_string(network.st_dev) + "/" + std::to_string(network.st_ino);
}

std::string node_identity() {
  const char* chosen = std::getenv("AGOQ_NODE_ID");
  return chosen != nullptr && *chosen != '\0' ? "node " + std::string(chosen) : host_identity();
}

std::vector<std::string> exchange_host_identities(Store& store, const std::string& key, int rank,
                                                  int size, Clock::time_point deadline) {
  store.set(key + "/" + std::to_string(rank), host_identity());
  std::vector<std::string> identities;
  for (int other = 0; other < size; ++other) {
    identities.push_back(store.get(key + "/" + std::to_string(other), deadline));
  }
  return identities;
}

}  // namespace agoq
