// The client of a StoreServer, and on rank 0 the server itself.
#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "agoqcomm/store.h"
#include "transport/mesh/endpoint.h"
#include "transport/mesh/system_error.h"
#include "transport/store/store_server.h"

namespace agoq {
namespace {

using std::chrono::milliseconds;

constexpr auto kRetry = milliseconds(50);

Endpoint resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "cannot find the store's host \"" + host + "\": " + ::gai_strerror(error));
  }
  const Endpoint endpoint(found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  return endpoint;
}

class TcpStore final : public Store {
 public:
  TcpStore(const std::string& host, std::uint16_t port, int rank, int size, milliseconds timeout)
      : endpoint_(resolve(host, port)),
        address_(host + ":" + std::to_string(port)),
        timeout_(timeout) {
    if (rank == 0) server_ = std::make_unique<StoreServer>(endpoint_, size);
    connect(Clock::now() + timeout);
  }

  void set(std::string_view key, std::string_view value) override {
    if (value.size() > kMaxValueBytes) {
      throw Error(ErrorCode::kInvalidArgument, "a store's value is at most 64 KiB");
    }
    request(StoreRequest::kSet, key, value, Clock::now() + timeout_);
  }

  std::string get(std::string_view key, Clock::time_point deadline) override {
    return request(StoreRequest::kGet, key, {}, deadline);
  }

  std::string address() const override { return address_; }

 private:
  void connect(Clock::time_point deadline) {
    for (;;) {
      fd_ = make_socket(endpoint_.family());
      int error = 0;
      if (::connect(fd_.get(), endpoint_.address(), endpoint_.bytes()) != 0) error = errno;
      if (error == EINPROGRESS) {
        await(POLLOUT, deadline, "to connect");
        socklen_t bytes = sizeof error;
        ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
      }
      if (error == 0) return;
      // Rank 0 may not have come yet.
      if (Clock::now() + kRetry >= deadline) {
        throw Error(ErrorCode::kTimeout,
                    "Timed out connecting to the store at " + address_ + ": " + error_text(error));
      }
      std::this_thread::sleep_for(kRetry);
    }
  }

  void await(short events, Clock::time_point deadline, const std::string& what) {
    for (;;) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
      if (left <= 0) {
        // An answer that comes later must not be taken for that to another request.
        fd_.reset();
        throw Error(ErrorCode::kTimeout,
                    "Timed out waiting for the store at " + address_ + " " + what);
      }
      pollfd request{fd_.get(), events, 0};
      const auto step = std::min<std::int64_t>(left, 60'000);
      if (::poll(&request, 1, static_cast<int>(step)) > 0) return;
    }
  }

  std::string request(StoreRequest kind, std::string_view key, std::string_view value,
                      Clock::time_point deadline) {
    if (key.empty() || key.size() > kMaxKeyBytes) {
      throw Error(ErrorCode::kInvalidArgument, "a store's key has 1 to 4096 bytes");
    }
    if (!fd_) connect(deadline);
    const StoreHeader header{kind, static_cast<std::uint32_t>(key.size()),
                             static_cast<std::uint32_t>(value.size())};
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    bytes.append(key).append(value);
    const std::string what =
        (kind == StoreRequest::kSet ? "to set \"" : "to hold \"") + std::string(key) + "\"";
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t count =
          ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count > 0) sent += static_cast<std::size_t>(count);
      if (count < 0 && !is_retry(errno)) throw_lost(error_text(errno));
      if (count < 0) await(POLLOUT, deadline, what);
    }
    std::uint32_t answer_bytes = 0;
    receive(reinterpret_cast<char*>(&answer_bytes), sizeof answer_bytes, deadline, what);
    if (answer_bytes > kMaxValueBytes) throw_lost("its answer is no store's");
    std::string answer(answer_bytes, '\0');
    receive(answer.data(), answer.size(), deadline, what);
    return answer;
  }

  void receive(char* into, std::size_t bytes, Clock::time_point deadline, const std::string& what) {
    for (std::size_t got = 0; got < bytes;) {
      const ssize_t count = ::recv(fd_.get(), into + got, bytes - got, 0);
      if (count > 0) got += static_cast<std::size_t>(count);
      if (count == 0) throw_lost("rank 0 closed it");
      if (count < 0 && !is_retry(errno)) throw_lost(error_text(errno));
      if (count < 0) await(POLLIN, deadline, what);
    }
  }

  [[noreturn]] void throw_lost(const std::string& reason) {
    fd_.reset();
    throw Error(ErrorCode::kPeerFailed, "the store at " + address_ + " is lost: " + reason, 0);
  }

  Endpoint endpoint_;
  std::string address_;
  milliseconds timeout_;
  std::unique_ptr<StoreServer> server_;
  UniqueFd fd_;  ///< Closed before the server, which waits for it.
};

}  // namespace

std::unique_ptr<Store> make_tcp_store(const std::string& host, std::uint16_t port, int rank,
                                      int size, milliseconds timeout) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw Error(ErrorCode::kInvalidArgument, "a store's rank is from 0 up and below its size");
  }
  return std::make_unique<TcpStore>(host, port, rank, size, timeout);
}

}  // namespace agoq
