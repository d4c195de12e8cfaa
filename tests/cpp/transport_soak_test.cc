// Random traffic: every rank draws the same plan of messages from a seed, posts its share in an
// order of its own, and checks every byte.
#include <random>

#include "transport_conformance.h"

namespace agoq::test {
namespace {

constexpr int kRanks = 4;

struct Message {
  int from;
  std::vector<int> to;
  Tag tag;
  std::size_t bytes;
  bool send_buffer;
};

using Random = std::mt19937_64;

std::size_t random_bytes(Random& random) {
  switch (random() % 8) {
    case 0:
      return 0;
    case 1:
      return random() % 400000;
    case 2:
      return 65536;
    default:
      return random() % 5000;
  }
}

std::vector<Message> plan_of(std::uint64_t call) {
  Random random(call);
  std::vector<Message> plan(random() % 24);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    Message& message = plan[i];
    message.from = static_cast<int>(random() % kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank != message.from && random() % 2 == 0) message.to.push_back(rank);
    }
    message.tag = i;
    message.bytes = random_bytes(random);
    message.send_buffer = random() % 2 == 0;
  }
  return plan;
}

/// One rank's share of one call.
class Share {
 public:
  Share(Transport& transport, std::uint64_t call, Random& random)
      : transport_(transport), call_(call), random_(random) {}

  void run() {
    const std::vector<Message> plan = plan_of(call_);
    transport_.begin_call(label_of(static_cast<int>(call_)));
    std::vector<std::size_t> order(plan.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random_);
    // Every rank sends in an order of its own, and receives in another.
    for (const std::size_t i : order) {
      if (plan[i].from == transport_.rank()) send(plan[i]);
      if (random_() % 4 == 0) poll_one();
    }
    std::shuffle(order.begin(), order.end(), random_);
    for (const std::size_t i : order) {
      const auto& to = plan[i].to;
      if (std::find(to.begin(), to.end(), transport_.rank()) != to.end()) receive(plan[i]);
      if (random_() % 4 == 0) poll_one();
    }
    for (const Expected& expected : expected_) finish(expected);
    complete(transport_, sends_);
    for (const Ticket ticket : sends_) transport_.release(ticket);
    flush(transport_);
  }

 private:
  struct Expected {
    Ticket ticket;
    std::uint64_t seed;
    std::size_t bytes;
    std::vector<std::byte>* into;  ///< Null for transport memory.
  };

  std::uint64_t seed_of_message(const Message& message) const { return call_ * 1000 + message.tag; }

  void send(const Message& message) {
    auto data = pattern(message.bytes, seed_of_message(message));
    if (message.send_buffer) {
      const SendBuffer buffer = transport_.acquire(message.bytes);
      std::copy(data.begin(), data.end(), buffer.data);
      transport_.post_send(buffer, message.to, message.tag);
      return;
    }
    memory_.push_back(std::make_unique<std::vector<std::byte>>(std::move(data)));
    sends_.push_back(
        transport_.post_send(memory_.back()->data(), message.bytes, message.to, message.tag));
  }

  void receive(const Message& message) {
    Expected expected{0, seed_of_message(message), message.bytes, nullptr};
    if (random_() % 2 == 0) {
      expected.ticket = transport_.post_receive(message.from, message.tag, message.bytes);
    } else {
      memory_.push_back(std::make_unique<std::vector<std::byte>>(message.bytes));
      expected.into = memory_.back().get();
      expected.ticket =
          transport_.post_receive(message.from, message.tag, expected.into->data(), message.bytes);
    }
    expected_.push_back(expected);
  }

  void poll_one() {
    if (!expected_.empty()) transport_.test(expected_[random_() % expected_.size()].ticket);
  }

  void finish(const Expected& expected) {
    complete(transport_, expected.ticket);
    const auto data = pattern(expected.bytes, expected.seed);
    const std::byte* const got =
        expected.into != nullptr ? expected.into->data() : transport_.received(expected.ticket);
    ASSERT_TRUE(std::equal(data.begin(), data.end(), got)) << "call " << call_;
    transport_.release(expected.ticket);
  }

  Transport& transport_;
  std::uint64_t call_;
  Random& random_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> memory_;
  std::vector<Ticket> sends_;
  std::vector<Expected> expected_;
};

class Soak : public Conformance {};

TEST_P(Soak, RandomMessagesAllComeOutRight) {
  if (ranks_at_hand() < kRanks) GTEST_SKIP() << "needs " << kRanks << " ranks";
  TransportConfig config;
  // Little, so that senders often find no room.
  config.shared_bytes = 2 << 20;
  const auto body = [&](Transport& transport) {
    Random random(static_cast<std::uint64_t>(transport.rank()) + 77);
    for (std::uint64_t call = 0; call < 200; ++call) Share(transport, call, random).run();
  };
  run_group(kind(), kRanks, body, config);
}

INSTANTIATE_TEST_SUITE_P(All, Soak, testing::ValuesIn(kAllKinds), kind_of);

}  // namespace
}  // namespace agoq::test
