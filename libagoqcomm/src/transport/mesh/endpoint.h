// Addresses that sockets bind and connect to: IPv4, IPv6 and abstract Unix names.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "transport/mesh/unique_fd.h"

namespace agoq {

/// Value type.
class Endpoint {
 public:
  Endpoint() = default;
  Endpoint(const sockaddr* address, socklen_t bytes);
  /// A numeric IPv4 or IPv6 address; throws Error(kInvalidArgument).
  static Endpoint inet(const std::string& host, int port);
  /// A name without a file, which goes when its socket does.
  static Endpoint unix_name(std::string_view name);
  /// Of a bound socket.
  static Endpoint of_socket(int fd);

  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t bytes() const { return bytes_; }
  int family() const { return storage_.ss_family; }
  bool is_loopback() const;
  /// fe80::/10 or 169.254/16: useless without naming the interface.
  bool is_link_local() const;
  void set_port(int port);
  /// "10.0.0.2:4411", "[fd00::2]:4411", "unix:agoq-..."
  std::string to_string() const;
  /// The bytes of the sockaddr, for the store.
  std::string serialize() const;
  /// Throws Error(kMismatch) for what serialize() never gives.
  static Endpoint deserialize(std::string_view bytes);

 private:
  sockaddr_storage storage_{};
  socklen_t bytes_ = 0;
};

/// A non-blocking socket, closed on exec, that listens at `endpoint`. Throws Error(kSystem).
UniqueFd listen_at(const Endpoint& endpoint);
/// A non-blocking socket, closed on exec.
UniqueFd make_socket(int family);

}  // namespace agoq
