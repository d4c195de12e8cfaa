#include "transport/mesh/endpoint.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstring>

#include "transport/mesh/system_error.h"

namespace agoq {
namespace {

constexpr int kBacklog = 1024;

}  // namespace

Endpoint::Endpoint(const sockaddr* address, socklen_t bytes) : bytes_(bytes) {
  std::memcpy(&storage_, address, bytes);
}

Endpoint Endpoint::inet(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "\"" + host + "\" is no numeric IPv4 or IPv6 address: " + ::gai_strerror(error));
  }
  const Endpoint endpoint(found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  return endpoint;
}

Endpoint Endpoint::unix_name(std::string_view name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract.
  name = name.substr(0, sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return {reinterpret_cast<const sockaddr*>(&address),
          static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

Endpoint Endpoint::of_socket(int fd) {
  Endpoint endpoint;
  endpoint.bytes_ = sizeof endpoint.storage_;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&endpoint.storage_), &endpoint.bytes_) != 0) {
    throw_system("getsockname");
  }
  return endpoint;
}

bool Endpoint::is_loopback() const {
  if (family() == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(storage_);
    return ntohl(in.sin_addr.s_addr) >> 24 == 127;
  }
  if (family() == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr);
  }
  return family() == AF_UNIX;
}

bool Endpoint::is_link_local() const {
  if (family() == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(storage_);
    return ntohl(in.sin_addr.s_addr) >> 16 == 0xa9fe;
  }
  return family() == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr);
}

void Endpoint::set_port(int port) {
  const in_port_t network = htons(static_cast<std::uint16_t>(port));
  if (family() == AF_INET) reinterpret_cast<sockaddr_in&>(storage_).sin_port = network;
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(storage_).sin6_port = network;
}

std::string Endpoint::to_string() const {
  if (family() == AF_UNIX) {
    const auto& un = reinterpret_cast<const sockaddr_un&>(storage_);
    const std::size_t prefix = offsetof(sockaddr_un, sun_path) + 1;
    return "unix:" + (bytes_ > prefix ? std::string(un.sun_path + 1, bytes_ - prefix) : "");
  }
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  const int error = ::getnameinfo(address(), bytes_, host, sizeof host, port, sizeof port,
                                  NI_NUMERICHOST | NI_NUMERICSERV);
  if (error != 0) return "an address of family " + std::to_string(family());
  std::string text = host;
  if (family() == AF_INET6) text = '[' + text + ']';
  text += ':';
  return text += port;
}

std::string Endpoint::serialize() const {
  return {reinterpret_cast<const char*>(&storage_), bytes_};
}

Endpoint Endpoint::deserialize(std::string_view bytes) {
  Endpoint endpoint;
  if (bytes.size() < sizeof(sa_family_t) || bytes.size() > sizeof endpoint.storage_) {
    throw Error(ErrorCode::kMismatch,
                "the store holds no socket address of a peer; do all ranks "
                "run one version of agoqcomm?");
  }
  std::memcpy(&endpoint.storage_, bytes.data(), bytes.size());
  endpoint.bytes_ = static_cast<socklen_t>(bytes.size());
  return endpoint;
}

UniqueFd make_socket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) throw_system("cannot make a socket");
  return fd;
}

UniqueFd listen_at(const Endpoint& endpoint) {
  UniqueFd fd = make_socket(endpoint.family());
  if (::bind(fd.get(), endpoint.address(), endpoint.bytes()) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    throw_system("cannot listen at " + endpoint.to_string());
  }
  return fd;
}

}  // namespace agoq
