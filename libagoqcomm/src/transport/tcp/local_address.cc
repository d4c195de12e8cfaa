#include "transport/tcp/local_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "transport/mesh/system_error.h"

namespace agoq {
namespace {

struct InterfaceAddress {
  std::string interface;
  Endpoint endpoint;
};

/// Addresses of interfaces that are up, IPv4 first, with port 0.
std::vector<InterfaceAddress> local_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw_system("cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || !(entry->ifa_flags & IFF_UP)) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    addresses.push_back({entry->ifa_name, Endpoint(entry->ifa_addr, bytes)});
  }
  std::stable_partition(addresses.begin(), addresses.end(), [](const InterfaceAddress& address) {
    return address.endpoint.family() == AF_INET;
  });
  return addresses;
}

struct AddrinfoDeleter {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

std::unique_ptr<addrinfo, AddrinfoDeleter> resolve(const std::string& host,
                                                   const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) found = nullptr;
  return std::unique_ptr<addrinfo, AddrinfoDeleter>(found);
}

bool is_useful(const Endpoint& endpoint) {
  return !endpoint.is_loopback() && !endpoint.is_link_local();
}

/// Connecting a datagram socket sends nothing, but makes the kernel choose the source address.
std::optional<Endpoint> source_address_for(const std::string& store_address) {
  const std::size_t colon = store_address.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  const auto found = resolve(store_address.substr(0, colon), store_address.substr(colon + 1));
  for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
    const UniqueFd fd(::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd || ::connect(fd.get(), entry->ai_addr, entry->ai_addrlen) != 0) continue;
    Endpoint source = Endpoint::of_socket(fd.get());
    source.set_port(0);
    if (is_useful(source)) return source;
  }
  return std::nullopt;
}

std::optional<Endpoint> address_of_host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return std::nullopt;
  const auto found = resolve(name, "0");
  const auto own = local_addresses();
  for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
    const Endpoint endpoint(entry->ai_addr, entry->ai_addrlen);
    const bool is_own = std::any_of(own.begin(), own.end(), [&](const InterfaceAddress& address) {
      return address.endpoint.to_string() == endpoint.to_string();
    });
    if (is_own && is_useful(endpoint)) return endpoint;
  }
  return std::nullopt;
}

}  // namespace

std::string chosen_interface(const TransportConfig& config) {
  if (!config.interface.empty()) return config.interface;
  for (const char* variable : {"AGOQ_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != '\0') return value;
  }
  return {};
}

Endpoint address_of_interface(const std::string& interface) {
  std::set<std::string> names;
  for (const InterfaceAddress& address : local_addresses()) {
    if (address.interface == interface && !address.endpoint.is_link_local()) {
      return address.endpoint;
    }
    names.insert(address.interface);
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw Error(ErrorCode::kInvalidArgument, "no network interface \"" + interface +
                                               "\" with an address is up; there are " + list +
                                               " (AGOQ_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)");
}

Endpoint outward_address(const std::string& store_address) {
  if (const auto source = source_address_for(store_address)) return *source;
  if (const auto named = address_of_host_name()) return *named;
  for (const InterfaceAddress& address : local_addresses()) {
    if (is_useful(address.endpoint)) return address.endpoint;
  }
  throw Error(ErrorCode::kUnsupported,
              "this host has no address that another host could reach; name an interface in "
              "AGOQ_SOCKET_IFNAME");
}

}  // namespace agoq
