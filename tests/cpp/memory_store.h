// A Store for ranks that are threads of one process.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "agoqcomm/error.h"
#include "agoqcomm/store.h"

namespace agoq::test {

/// Thread-safe, unlike a Store must be: all ranks share one object.
class MemoryStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override {
    {
      std::lock_guard lock(mutex_);
      values_[std::string(key)] = std::string(value);
    }
    changed_.notify_all();
  }

  std::string get(std::string_view key, Clock::time_point deadline) override {
    std::unique_lock lock(mutex_);
    const std::string name(key);
    if (!changed_.wait_until(lock, deadline, [&] { return values_.count(name) != 0; })) {
      throw Error(ErrorCode::kTimeout, "Timed out waiting for the key \"" + name + "\"");
    }
    return values_[name];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace agoq::test
