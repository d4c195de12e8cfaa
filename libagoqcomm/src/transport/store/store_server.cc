#include "transport/store/store_server.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "transport/mesh/system_error.h"

namespace agoq {
namespace {

constexpr auto kFarewell = std::chrono::seconds(10);
constexpr std::size_t kMaxClients = 65536;

}  // namespace

StoreServer::StoreServer(const Endpoint& endpoint, int clients)
    : stop_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), expected_(clients) {
  if (!stop_) throw_system("cannot make an eventfd");
  listener_ = make_socket(endpoint.family());
  const int on = 1;
  // A port given by the user is used again in the next run, while old connections still time out.
  ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener_.get(), endpoint.address(), endpoint.bytes()) != 0 ||
      ::listen(listener_.get(), 1024) != 0) {
    throw_system("the store cannot listen at " + endpoint.to_string());
  }
  thread_ = std::thread([this] { serve(); });
}

StoreServer::~StoreServer() {
  stopping_.store(true);
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

bool StoreServer::is_over() const { return stopping_.load() && gone_ >= expected_; }

void StoreServer::serve() {
  auto last = std::chrono::steady_clock::time_point::max();
  while (!is_over() && std::chrono::steady_clock::now() < last) {
    std::vector<pollfd> fds;
    fds.push_back({listener_.get(), POLLIN, 0});
    // Once it has been told to stop it only looks at the clock.
    fds.push_back({stopping_.load() ? -1 : stop_.get(), POLLIN, 0});
    for (const Client& client : clients_) {
      const int events = POLLIN | (client.out.empty() ? 0 : POLLOUT);
      fds.push_back({client.fd.get(), static_cast<short>(events), 0});
    }
    ::poll(fds.data(), fds.size(), stopping_.load() ? 50 : -1);
    if (stopping_.load()) last = std::min(last, std::chrono::steady_clock::now() + kFarewell);
    for (std::size_t i = clients_.size(); i-- > 0;) {
      Client& client = clients_[i];
      const short events = fds[i + 2].revents;
      bool keep = true;
      if (events & ~POLLOUT) keep = read(client);
      if (keep && !client.out.empty()) {
        const ssize_t sent = ::send(client.fd.get(), client.out.data(), client.out.size(),
                                    MSG_NOSIGNAL | MSG_DONTWAIT);
        keep = sent >= 0 || is_retry(errno);
        if (sent > 0) client.out.erase(0, static_cast<std::size_t>(sent));
      }
      if (keep) continue;
      gone_ += client.counted;
      clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (fds[0].revents != 0) accept_all();
  }
}

void StoreServer::accept_all() {
  while (clients_.size() < kMaxClients) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) return;
    clients_.emplace_back().fd = std::move(fd);
  }
}

bool StoreServer::read(Client& client) {
  char bytes[4096];
  const ssize_t count = ::recv(client.fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (count < 0 && is_retry(errno)) return true;
  if (count <= 0) return false;
  client.in.append(bytes, static_cast<std::size_t>(count));
  return handle_requests(client);
}

bool StoreServer::handle_requests(Client& client) {
  // One request at a time: a client waits for its answer before it asks again.
  while (client.awaited.empty() && client.in.size() >= sizeof(StoreHeader)) {
    StoreHeader header;
    std::memcpy(&header, client.in.data(), sizeof header);
    const bool is_set = header.request == StoreRequest::kSet;
    if ((!is_set && header.request != StoreRequest::kGet) || header.key_bytes > kMaxKeyBytes ||
        header.key_bytes == 0 || header.value_bytes > (is_set ? kMaxValueBytes : 0)) {
      return false;
    }
    const std::size_t whole = sizeof header + header.key_bytes + header.value_bytes;
    if (client.in.size() < whole) break;
    const std::string key = client.in.substr(sizeof header, header.key_bytes);
    std::string value = client.in.substr(sizeof header + header.key_bytes, header.value_bytes);
    client.in.erase(0, whole);
    client.counted = true;
    if (is_set) {
      set(key, std::move(value));
      answer(client, "");
    } else if (const auto found = values_.find(key); found != values_.end()) {
      answer(client, found->second);
    } else {
      client.awaited = key;
    }
  }
  return client.in.size() <= sizeof(StoreHeader) + kMaxKeyBytes + kMaxValueBytes;
}

void StoreServer::answer(Client& client, const std::string& value) {
  const std::uint32_t bytes = static_cast<std::uint32_t>(value.size());
  client.out.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  client.out += value;
}

void StoreServer::set(const std::string& key, std::string value) {
  for (Client& client : clients_) {
    if (client.awaited != key) continue;
    client.awaited.clear();
    answer(client, value);
  }
  values_[key] = std::move(value);
}

}  // namespace agoq
