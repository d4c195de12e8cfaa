// An Inbox for tests of single links.
#pragma once

#include <vector>

#include "transport/mesh/link.h"

namespace agoq::test {

/// Takes every message that fits into one block of memory and has no patience, and counts.
class Sink final : public Inbox {
 public:
  explicit Sink(std::size_t bytes = 4096) : memory_(bytes) {}

  void on_call(int, std::uint32_t, const Label&) override { ++calls; }
  Placement on_message(const Incoming& message) override {
    if (message.bytes > memory_.size() || message.is_patient) return {};
    return {Placement::Action::kCopy, memory_.data(), 1};
  }
  void on_received(std::uint64_t) override { ++received; }
  void on_sent(std::uint64_t) override { ++sent; }

  int calls = 0;
  int received = 0;
  int sent = 0;

 private:
  std::vector<std::byte> memory_;
};

}  // namespace agoq::test
