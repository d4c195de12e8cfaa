// Which host a rank runs on.
#pragma once

#include <string>
#include <vector>

#include "agoqcomm/store.h"

namespace agoq {

/// Equal for two processes exactly if they run under one kernel and in one network namespace: then
/// loopback and abstract Unix names lead from one to the other.
std::string host_identity();

/// host_identity() of every rank, by way of the store. `key` is used once.
std::vector<std::string> exchange_host_identities(Store& store, const std::string& key, int rank,
                                                  int size, Clock::time_point deadline);

}  // namespace agoq
