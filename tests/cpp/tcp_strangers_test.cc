// Whoever connects to a rank's port without the group's secret.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <random>

#include "transport/mesh/hello.h"
#include "transport/mesh/rendezvous.h"
#include "transport/mesh/system_error.h"
#include "transport_group.h"

namespace agoq::test {
namespace {

/// Holds one key back, so that the ranks that have published wait for the last.
class GateStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value) override { inner_.set(key, value); }
  std::string get(std::string_view key, Clock::time_point deadline) override {
    return inner_.get(key, deadline);
  }

  /// Where rank 0 listens, once it does.
  Endpoint endpoint_of_rank_0() {
    const std::string published = get("agoq/tcp/0", Clock::now() + kPatience);
    return Endpoint::deserialize(std::string_view(published).substr(sizeof(Secret)));
  }

 private:
  MemoryStore inner_;
};

UniqueFd connect_to(const Endpoint& endpoint) {
  UniqueFd fd(::socket(endpoint.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), endpoint.address(), endpoint.bytes()) != 0) throw_system("connect");
  return fd;
}

void send_all(const UniqueFd& fd, const void* data, std::size_t bytes) {
  // A stranger that was dropped in the meantime is no failure of the test.
  ::send(fd.get(), data, bytes, MSG_NOSIGNAL);
}

/// True once the other side has closed, within `patience`.
bool is_dropped(const UniqueFd& fd, std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  while (Clock::now() < deadline) {
    pollfd request{fd.get(), POLLIN, 0};
    if (::poll(&request, 1, 100) <= 0) continue;
    char bytes[256];
    if (::recv(fd.get(), bytes, sizeof bytes, MSG_DONTWAIT) <= 0) return true;
  }
  return false;
}

/// Rank 0 waits for rank 1 while `attack` runs; then rank 1 comes, and the two must understand each
/// other.
void run_attack(const std::function<void(const Endpoint& target)>& attack) {
  GateStore store;
  std::vector<std::unique_ptr<Transport>> group(2);
  std::thread rank_0([&] { group[0] = make_tcp_transport(store, 0, 2); });
  // Rank 1's host is known, so rank 0 goes on to listen; rank 1 itself comes later.
  std::string host;
  std::thread rank_1([&] {
    store.set("agoq/tcp/host/1", store.get("agoq/tcp/host/0", Clock::now() + kPatience));
    attack(store.endpoint_of_rank_0());
    group[1] = make_tcp_transport(store, 1, 2);
  });
  rank_0.join();
  rank_1.join();
  for (auto& transport : group) transport->begin_call(label_of(1));
  const auto data = pattern(10000, 1);
  const int to[] = {1};
  group[0]->post_send(data.data(), data.size(), to, 1);
  const Ticket ticket = group[1]->post_receive(0, 1, data.size());
  const auto deadline = Clock::now() + kPatience;
  while (!group[1]->test(ticket) && Clock::now() < deadline) group[0]->sends_complete();
  ASSERT_TRUE(group[1]->test(ticket));
  EXPECT_EQ(std::memcmp(group[1]->received(ticket), data.data(), data.size()), 0);
}

TEST(TcpStrangers, RandomBytesAreDropped) {
  run_attack([](const Endpoint& target) {
    const auto bytes = pattern(1 << 16, 99);
    const UniqueFd fd = connect_to(target);
    send_all(fd, bytes.data(), bytes.size());
    EXPECT_TRUE(is_dropped(fd, 5s));
  });
}

TEST(TcpStrangers, AWrongSecretIsDropped) {
  run_attack([](const Endpoint& target) {
    const Hello hello = make_hello(1, 0, random_secret());
    const UniqueFd fd = connect_to(target);
    send_all(fd, &hello, sizeof hello);
    EXPECT_TRUE(is_dropped(fd, 5s));
  });
}

TEST(TcpStrangers, AHugeLengthAllocatesNothing) {
  run_attack([](const Endpoint& target) {
    std::vector<std::uint64_t> words(8, ~std::uint64_t{0});
    const UniqueFd fd = connect_to(target);
    send_all(fd, words.data(), words.size() * sizeof words[0]);
    EXPECT_TRUE(is_dropped(fd, 5s));
  });
}

TEST(TcpStrangers, WhoSaysHalfAHelloIsDroppedInTime) {
  run_attack([](const Endpoint& target) {
    const Hello hello = make_hello(1, 0, random_secret());
    const UniqueFd silent = connect_to(target);
    const UniqueFd slow = connect_to(target);
    for (std::size_t i = 0; i < sizeof hello / 2; ++i) {
      send_all(slow, reinterpret_cast<const char*>(&hello) + i, 1);
      std::this_thread::sleep_for(10ms);
    }
    EXPECT_TRUE(is_dropped(silent, 10s));
    EXPECT_TRUE(is_dropped(slow, 10s));
  });
}

TEST(TcpStrangers, ACrowdDoesNotKeepAPeerOut) {
  std::vector<UniqueFd> crowd;
  run_attack([&](const Endpoint& target) {
    for (int i = 0; i < 600; ++i) {
      UniqueFd fd(::socket(target.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ::connect(fd.get(), target.address(), target.bytes());
      crowd.push_back(std::move(fd));
    }
  });
}

TEST(TcpStrangers, NobodyCanConnectOnceTheGroupStands) {
  GateStore store;
  std::vector<std::unique_ptr<Transport>> group(2);
  run_threads(2, [&](int rank) {
    group[static_cast<std::size_t>(rank)] = make_tcp_transport(store, rank, 2);
  });
  const Endpoint target = store.endpoint_of_rank_0();
  const UniqueFd fd(::socket(target.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_NE(::connect(fd.get(), target.address(), target.bytes()), 0);
  EXPECT_EQ(errno, ECONNREFUSED);
}

TEST(TcpStrangers, AnAnswerWithoutTheSecretIsRefused) {
  // Someone else listens where rank 0 is said to be.
  MemoryStore store;
  const UniqueFd impostor = listen_at(Endpoint::inet("127.0.0.1", 0));
  ::fcntl(impostor.get(), F_SETFL, 0);
  std::thread answer([&] {
    const UniqueFd fd(::accept4(impostor.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const Hello hello = make_hello(0, 1, random_secret());
    send_all(fd, &hello, sizeof hello);
    EXPECT_TRUE(is_dropped(fd, 5s));
  });
  store.set("agoq/tcp/host/0", "another host");
  store.set("agoq/tcp/0",
            std::string(sizeof(Secret), 's') + Endpoint::of_socket(impostor.get()).serialize());
  TransportConfig config;
  config.timeout = 500ms;
  config.interface = "lo";
  try {
    make_tcp_transport(store, 1, 2, config);
    ADD_FAILURE() << "an impostor was taken for rank 0";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_EQ(error.peer(), 0);
    const std::string what = error.what();
    EXPECT_NE(what.find("rank 0"), std::string::npos) << what;
    EXPECT_NE(what.find("127.0.0.1:"), std::string::npos) << what;
  }
  answer.join();
}

}  // namespace
}  // namespace agoq::test
