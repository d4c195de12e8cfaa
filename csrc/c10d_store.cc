#include "c10d_store.h"

#include <algorithm>

#include "agoqcomm/error.h"

namespace agoq {

void C10dStore::set(std::string_view key, std::string_view value) {
  store_->set(std::string(key), std::vector<std::uint8_t>(value.begin(), value.end()));
}

std::string C10dStore::get(std::string_view key, Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  const std::string name(key);
  try {
    // torch takes 0 for no limit.
    store_->wait({name}, std::max(left, std::chrono::milliseconds(1)));
  } catch (const c10::DistStoreError&) {
    throw Error(ErrorCode::kTimeout,
                "no rank set '" + name + "' in the store of the group in time");
  }
  return store_->get_to_str(name);
}

}  // namespace agoq
