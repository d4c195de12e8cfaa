// Where a message goes that a link has brought: to its receive, early into memory, or not yet.
#include "transport/mesh/receive_table.h"

#include <gtest/gtest.h>

#include <array>

namespace agoq::test {
namespace {

constexpr std::size_t kBytes = 100;
constexpr std::size_t kEarlyBytes = 250;

class ReceiveTableTest : public testing::Test {
 protected:
  static Incoming message(Tag tag, bool is_patient) {
    Incoming incoming;
    incoming.peer = 1;
    incoming.tag = tag;
    incoming.bytes = kBytes;
    incoming.is_patient = is_patient;
    return incoming;
  }

  ReceiveTable table_{2, kEarlyBytes, [](int, std::uint64_t) {}};
  std::array<std::byte, kBytes> memory_{};
};

TEST_F(ReceiveTableTest, WhatIsPostedGoesToItsPlaceAtOnce) {
  for (const bool is_patient : {false, true}) {
    table_.post(1, 7, memory_.data(), true, kBytes);
    const Placement placement = table_.place(message(7, is_patient));
    EXPECT_EQ(placement.action, Placement::Action::kCopy);
    EXPECT_EQ(placement.into, memory_.data());
    table_.on_received(placement.receive);
    table_.release(placement.receive);
  }
}

TEST_F(ReceiveTableTest, APatientMessageWaitsForItsReceive) {
  EXPECT_EQ(table_.place(message(7, true)).action, Placement::Action::kNotNow);
  table_.post(1, 7, memory_.data(), true, kBytes);
  EXPECT_EQ(table_.place(message(7, true)).into, memory_.data());
}

TEST_F(ReceiveTableTest, WhatHasNoPatienceIsKeptEarlyAsFarAsMemoryGoes) {
  for (Tag tag = 0; tag < 2; ++tag) {
    const Placement placement = table_.place(message(tag, false));
    EXPECT_EQ(placement.action, Placement::Action::kCopy);
    EXPECT_NE(placement.into, nullptr);
  }
  EXPECT_EQ(table_.place(message(2, false)).action, Placement::Action::kNotNow);
}

}  // namespace
}  // namespace agoq::test
