// torch's store as the core's, for transports that connect through it.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "agoqcomm/store.h"

namespace agoq {

/// Used by one thread at a time. Keys are the caller's: give each group its own PrefixStore.
class C10dStore final : public Store {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, Clock::time_point deadline) override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace agoq
