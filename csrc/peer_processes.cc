#include "peer_processes.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

namespace agoq {
namespace {

/// Two processes see each other's ids only on the same boot of the same host, in the same
/// namespace.
std::string own_realm() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char name_space[64] = {};
  if (readlink("/proc/self/ns/pid", name_space, sizeof(name_space) - 1) < 0) return "";
  return boot + "/" + name_space;
}

bool has_ended(pid_t process) {
  if (kill(process, 0) != 0) return errno == ESRCH;
  // One that has exited stays as a zombie until its parent has asked for its status.
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= line.size()) return false;
  const char state = line[name_end + 2];
  return state == 'Z' || state == 'X';
}

}  // namespace

PeerProcesses::PeerProcesses(std::vector<std::string> identities)
    : identities_(std::move(identities)) {}

std::string PeerProcesses::own_identity() { return own_realm() + ":" + std::to_string(getpid()); }

std::vector<int> PeerProcesses::gone() const {
  std::vector<int> ranks;
  const auto realm = own_realm();
  if (realm.empty()) return ranks;
  for (std::size_t rank = 0; rank < identities_.size(); ++rank) {
    const auto& identity = identities_[rank];
    const auto colon = identity.rfind(':');
    if (colon == std::string::npos || identity.substr(0, colon) != realm) continue;
    if (has_ended(static_cast<pid_t>(std::stol(identity.substr(colon + 1))))) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  return ranks;
}

}  // namespace agoq
