// Which address a rank gives to its peers, and how they are named.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "transport/mesh/endpoint.h"
#include "transport/mesh/rendezvous.h"
#include "transport/tcp/local_address.h"
#include "transport_group.h"

namespace agoq::test {
namespace {

bool has_ipv6_loopback() {
  try {
    listen_at(Endpoint::inet("::1", 0));
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(TcpAddress, TheConfigGoesBeforeTheVariables) {
  ::setenv("AGOQ_SOCKET_IFNAME", "first0", 1);
  ::setenv("GLOO_SOCKET_IFNAME", "second0", 1);
  TransportConfig config;
  config.interface = "chosen0";
  EXPECT_EQ(chosen_interface(config), "chosen0");
  config.interface.clear();
  EXPECT_EQ(chosen_interface(config), "first0");
  ::unsetenv("AGOQ_SOCKET_IFNAME");
  EXPECT_EQ(chosen_interface(config), "second0");
  ::unsetenv("GLOO_SOCKET_IFNAME");
  EXPECT_EQ(chosen_interface(config), "");
}

TEST(TcpAddress, AnInterfaceThatDoesNotExistIsNamedWithThoseThatDo) {
  try {
    address_of_interface("nosuch0");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    const std::string what = error.what();
    EXPECT_NE(what.find("nosuch0"), std::string::npos) << what;
    EXPECT_NE(what.find("lo"), std::string::npos) << what;
  }
}

TEST(TcpAddress, LoopbackHasAnAddress) {
  const Endpoint endpoint = address_of_interface("lo");
  EXPECT_TRUE(endpoint.is_loopback());
  EXPECT_EQ(endpoint.to_string(), "127.0.0.1:0");
}

TEST(TcpAddress, AStoreOnLoopbackTellsNothingAboutTheWayOut) {
  try {
    EXPECT_FALSE(outward_address("127.0.0.1:80").is_loopback());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << "a host without any network";
  }
}

TEST(TcpAddress, EndpointsReadAsPeopleWriteThem) {
  EXPECT_EQ(Endpoint::inet("10.1.2.3", 4567).to_string(), "10.1.2.3:4567");
  EXPECT_EQ(Endpoint::inet("fd00::7", 4567).to_string(), "[fd00::7]:4567");
  EXPECT_EQ(Endpoint::unix_name("agoq-x").to_string(), "unix:agoq-x");
  EXPECT_TRUE(Endpoint::inet("::1", 1).is_loopback());
  EXPECT_TRUE(Endpoint::inet("fe80::1", 1).is_link_local());
  EXPECT_TRUE(Endpoint::inet("169.254.3.4", 1).is_link_local());
  EXPECT_FALSE(Endpoint::inet("10.1.2.3", 1).is_link_local());
  EXPECT_THROW(Endpoint::inet("no-number.example", 1), Error);
}

TEST(TcpAddress, EndpointsTravelThroughTheStore) {
  for (const Endpoint& endpoint : {Endpoint::inet("10.1.2.3", 4567), Endpoint::inet("fd00::7", 1),
                                   Endpoint::unix_name("agoq-x")}) {
    EXPECT_EQ(Endpoint::deserialize(endpoint.serialize()).to_string(), endpoint.to_string());
  }
  EXPECT_THROW(Endpoint::deserialize(""), Error);
  EXPECT_THROW(Endpoint::deserialize(std::string(1000, 'x')), Error);
}

TEST(TcpAddress, APeerOverIpv6) {
  if (!has_ipv6_loopback()) GTEST_SKIP() << "this machine has no IPv6 loopback";
  const Endpoint any = Endpoint::inet("::1", 0);
  MemoryStore store;
  run_threads(2, [&](int rank) {
    const Meeting meeting{"v6", rank, {1 - rank}, Clock::now() + kPatience, -1};
    const auto sockets = meet(store, meeting, any);
    ASSERT_EQ(sockets.size(), 1u);
    EXPECT_EQ(sockets[0].peer, 1 - rank);
    EXPECT_EQ(sockets[0].address.substr(0, 6), "[::1]:");
  });
}

}  // namespace
}  // namespace agoq::test
