// One end of a tcp link: what ends it, and what the peer learns about why.
#include "transport/tcp/tcp_link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>

#include "link_sink.h"
#include "transport/mesh/endpoint.h"
#include "transport_group.h"

namespace agoq::test {
namespace {

constexpr std::size_t kLarge = 16 << 20;  // More than any socket buffers.

struct Pair {
  Pair() {
    int sockets[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets), 0);
    near.emplace(1, UniqueFd(sockets[0]), "near");
    far = UniqueFd(sockets[1]);
  }
  void write(const void* data, std::size_t bytes) {
    EXPECT_EQ(::send(far.get(), data, bytes, 0), static_cast<ssize_t>(bytes));
  }

  std::optional<TcpLink> near;
  UniqueFd far;
};

/// Lets the link run until it has ended.
LinkEnd end_of(TcpLink& link, Sink& sink) {
  const auto deadline = Clock::now() + kPatience;
  while (!link.end() && Clock::now() < deadline) {
    if (!link.progress(sink)) std::this_thread::sleep_for(1ms);
  }
  return link.end().value_or(LinkEnd{true, "it has not ended", {}});
}

TEST(TcpLink, BytesThatAreNoFrameEndIt) {
  Pair pair;
  const auto bytes = pattern(1000, 5);
  pair.write(bytes.data(), bytes.size());
  Sink sink;
  const LinkEnd end = end_of(*pair.near, sink);
  EXPECT_FALSE(end.goodbye);
  EXPECT_NE(end.reason.find("no frame"), std::string::npos) << end.reason;
}

TEST(TcpLink, ALabelOfAnotherLengthEndsIt) {
  Pair pair;
  const FrameHeader header{FrameKind::kCall, 1, 0, 1000};
  pair.write(&header, sizeof header);
  Sink sink;
  EXPECT_FALSE(end_of(*pair.near, sink).goodbye);
  EXPECT_EQ(sink.calls, 0);
}

TEST(TcpLink, AHugeMessageWaitsAndTakesNoMemory) {
  Pair pair;
  const FrameHeader header{FrameKind::kMessage, 1, 0, ~std::uint64_t{0}};
  pair.write(&header, sizeof header);
  Sink sink;
  for (int i = 0; i < 10; ++i) pair.near->progress(sink);
  EXPECT_FALSE(pair.near->end());
  EXPECT_EQ(sink.received, 0);
  EXPECT_EQ(pair.near->poll_request().fd, -1) << "nothing can be read until there is a place";
}

TEST(TcpLink, FramesMayComeByteByByte) {
  Pair pair;
  const Label label = label_of(3);
  const FrameHeader call{FrameKind::kCall, 1, 0, sizeof label};
  const FrameHeader message{FrameKind::kMessage, 1, 9, 5};
  std::string bytes(reinterpret_cast<const char*>(&call), sizeof call);
  bytes.append(reinterpret_cast<const char*>(&label), sizeof label);
  bytes.append(reinterpret_cast<const char*>(&message), sizeof message).append("12345");
  Sink sink;
  for (const char byte : bytes) {
    EXPECT_EQ(sink.received, 0);
    pair.write(&byte, 1);
    pair.near->progress(sink);
  }
  EXPECT_EQ(sink.calls, 1);
  EXPECT_EQ(sink.received, 1);
}

TEST(TcpLink, OfLongMessagesThatCameTogetherTheSecondIsAskedForAgain) {
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{32} << 10}) {
    Pair pair;
    const FrameHeader message{FrameKind::kMessage, 1, 9, bytes};
    const auto body = pattern(bytes, 5);
    for (int i = 0; i < 3; ++i) {
      pair.write(&message, sizeof message);
      pair.write(body.data(), body.size());
    }
    Sink sink(bytes);
    EXPECT_TRUE(pair.near->progress(sink));
    EXPECT_EQ(sink.received, bytes == 100 ? 3 : 1);
    for (int i = 0; i < 2; ++i) pair.near->progress(sink);
    EXPECT_EQ(sink.received, 3);
  }
}

TEST(TcpLink, AGoodbyeIsNoFailure) {
  Pair pair;
  std::optional<TcpLink> peer;
  peer.emplace(0, std::move(pair.far), "far");
  peer->leave({}, Clock::now());
  peer.reset();
  Sink sink;
  EXPECT_TRUE(end_of(*pair.near, sink).goodbye);
}

TEST(TcpLink, ClosingWithoutAGoodbyeIsOne) {
  Pair pair;
  pair.far.reset();
  Sink sink;
  const LinkEnd end = end_of(*pair.near, sink);
  EXPECT_FALSE(end.goodbye);
  EXPECT_FALSE(end.culprit);
}

TEST(TcpLink, AResetAmidAMessageIsNamed) {
  const UniqueFd listener = listen_at(Endpoint::inet("127.0.0.1", 0));
  const Endpoint target = Endpoint::of_socket(listener.get());
  UniqueFd far(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(far.get(), target.address(), target.bytes()), 0);
  UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  ASSERT_TRUE(accepted);
  TcpLink near(1, std::move(accepted), "near");
  const FrameHeader header{FrameKind::kMessage, 1, 0, 4000};
  ASSERT_EQ(::send(far.get(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
  Sink sink;
  near.progress(sink);
  // Closing without lingering resets the connection.
  const linger at_once{1, 0};
  ::setsockopt(far.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  far.reset();
  const LinkEnd end = end_of(near, sink);
  EXPECT_FALSE(end.goodbye);
  EXPECT_NE(end.reason.find("reset"), std::string::npos) << end.reason;
  EXPECT_EQ(sink.received, 0);
}

TEST(TcpLink, LeavingWithUnsentMessagesSaysNothing) {
  Pair pair;
  std::optional<TcpLink> peer;
  peer.emplace(0, std::move(pair.far), "far");
  const auto data = pattern(kLarge, 1);
  Sink sink(kLarge);
  peer->post({1, data.data(), data.size(), 1, 0}, sink);
  ASSERT_TRUE(peer->has_unsent());
  peer->leave({}, Clock::now() + kPatience);
  peer.reset();
  EXPECT_FALSE(end_of(*pair.near, sink).goodbye);
  EXPECT_EQ(sink.received, 0);
}

TEST(TcpLink, AFarewellFollowsTheMessageThatIsHalfSent) {
  Pair pair;
  TcpLink peer(0, std::move(pair.far), "far");
  const auto data = pattern(kLarge, 1);
  Sink sending;
  peer.post({1, data.data(), data.size(), 1, 0}, sending);
  peer.post({2, data.data(), data.size(), 2, 0}, sending);
  std::thread leaver([&] { peer.leave({true, 7}, Clock::now() + kPatience); });
  Sink sink(kLarge);
  const LinkEnd end = end_of(*pair.near, sink);
  leaver.join();
  EXPECT_EQ(end.culprit, 7) << end.reason;
  EXPECT_EQ(sink.received, 1) << "the second message was not begun";
}

TEST(TcpLink, AFarewellDoesNotWaitForAPeerThatDoesNotRead) {
  Pair pair;
  TcpLink peer(0, std::move(pair.far), "far");
  const auto data = pattern(kLarge, 1);
  Sink sending;
  peer.post({1, data.data(), data.size(), 1, 0}, sending);
  const auto start = Clock::now();
  peer.leave({true, 7}, start + 50ms);
  EXPECT_LT(Clock::now() - start, 5s);
  EXPECT_FALSE(peer.has_unsent()) << "the sender's memory may go now";
}

}  // namespace
}  // namespace agoq::test
