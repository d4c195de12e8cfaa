// Which processes the ranks of a group are, so that a failed call can name those that are gone.
#pragma once

#include <string>
#include <vector>

namespace agoq {

/// Thread-safe: immutable after construction.
class PeerProcesses {
 public:
  PeerProcesses() = default;
  /// identities[r] is what own_identity() was on rank r.
  explicit PeerProcesses(std::vector<std::string> identities);

  /// One word: host and process-id namespace, and the process id.
  static std::string own_identity();
  /// Ranks on this host whose process has ended. Ranks on other hosts are never listed.
  std::vector<int> gone() const;

 private:
  std::vector<std::string> identities_;
};

}  // namespace agoq
