// Groups of ranks for the tests of transports: as threads, or as forked processes.
#pragma once

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "agoqcomm/auto.h"
#include "agoqcomm/inproc.h"
#include "agoqcomm/shm.h"
#include "agoqcomm/store.h"
#include "agoqcomm/tcp.h"
#include "memory_store.h"

namespace agoq::test {

using namespace std::chrono_literals;

/// No wait of a test is longer.
inline constexpr auto kPatience = 30s;

/// kTwoHosts is auto with even and odd ranks made to believe that they run on two hosts. The ranks
/// of kMpi are those that mpirun has started: see mpi_ranks.h.
enum class Kind { kInproc, kTcp, kShm, kAuto, kTwoHosts, kMpi };

inline std::string to_string(Kind kind) {
  constexpr const char* kNames[] = {"inproc", "tcp", "shm", "auto", "two_hosts", "mpi"};
  return kNames[static_cast<int>(kind)];
}

/// Hides that even and odd ranks share a host.
class TwoHostsStore final : public Store {
 public:
  TwoHostsStore(Store& store, int rank) : store_(store), host_(rank % 2 == 0 ? "even" : "odd") {}

  void set(std::string_view key, std::string_view value) override {
    const bool is_host = key.find("/host/") != std::string_view::npos;
    store_.set(key, is_host ? host_ : value);
  }
  std::string get(std::string_view key, Clock::time_point deadline) override {
    return store_.get(key, deadline);
  }

 private:
  Store& store_;
  std::string host_;
};

inline std::unique_ptr<Transport> make_transport(Kind kind, Store& store, int rank, int size,
                                                 const TransportConfig& config = {}) {
  switch (kind) {
    case Kind::kTcp:
      return make_tcp_transport(store, rank, size, config);
    case Kind::kShm:
      return make_shm_transport(store, rank, size, config);
    case Kind::kAuto:
      return make_auto_transport(store, rank, size, config);
    case Kind::kTwoHosts: {
      TwoHostsStore two_hosts(store, rank);
      TransportConfig on_loopback = config;
      on_loopback.interface = "lo";
      return make_auto_transport(two_hosts, rank, size, on_loopback);
    }
    case Kind::kInproc:
    case Kind::kMpi:
      break;
  }
  throw std::logic_error("a group of this kind is made whole");
}

/// Runs body(rank) on `size` threads and throws again what the lowest rank threw.
inline void run_threads(int size, const std::function<void(int rank)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

inline std::vector<std::unique_ptr<Transport>> make_group(Kind kind, int size,
                                                          const TransportConfig& config = {}) {
  if (kind == Kind::kInproc) return make_inproc_group(size);
  MemoryStore store;
  std::vector<std::unique_ptr<Transport>> group(static_cast<std::size_t>(size));
  run_threads(size, [&](int rank) {
    group[static_cast<std::size_t>(rank)] = make_transport(kind, store, rank, size, config);
  });
  return group;
}

/// A port of loopback that this process keeps for whoever binds it with SO_REUSEADDR, as the
/// store's server does: neither a bind to any port nor a connection on its way out gets it
/// meanwhile.
inline std::uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), bytes) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0;
  if (!bound) throw std::runtime_error("no port is free on loopback");
  // Stays open, and only now lets others in.
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return ntohs(address.sin_port);
}

/// Processes that run body(rank); a body that throws makes its process exit with 1.
class Processes {
 public:
  Processes(int size, const std::function<void(int rank)>& body) {
    for (int rank = 0; rank < size; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        int status = 0;
        try {
          body(rank);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
          status = 1;
        }
        std::fflush(nullptr);
        ::_exit(status);
      }
      pids_.push_back(pid);
    }
  }
  ~Processes() {
    for (const pid_t pid : pids_) {
      if (pid <= 0) continue;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  pid_t pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }

  /// The wait status of a rank's process, which has to end within kPatience; -1 if it has not.
  int wait(int rank) {
    pid_t& pid = pids_[static_cast<std::size_t>(rank)];
    const auto deadline = Clock::now() + kPatience;
    int status = 0;
    while (::waitpid(pid, &status, WNOHANG) == 0) {
      if (Clock::now() > deadline) return -1;
      std::this_thread::sleep_for(2ms);
    }
    pid = -1;
    return status;
  }

 private:
  std::vector<pid_t> pids_;
};

/// Whether `question` is answered by yes within kPatience. What the kernel shows in /proc of a
/// thread that has been joined goes away a little later.
inline bool comes_true(const std::function<bool()>& question) {
  const auto deadline = Clock::now() + kPatience;
  while (!question()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

/// Drives `transport` until `done()`, or throws after kPatience.
inline void drive(Transport& transport, const std::function<bool()>& done) {
  const auto deadline = Clock::now() + kPatience;
  while (!done()) {
    if (Clock::now() > deadline) throw std::runtime_error("a test's patience is over");
    // A wait that misses what it waits for is found by the test's own time running out.
    transport.wait(deadline);
  }
}

inline void complete(Transport& transport, Ticket ticket) {
  drive(transport, [&] { return transport.test(ticket); });
}

inline void complete(Transport& transport, const std::vector<Ticket>& tickets) {
  for (const Ticket ticket : tickets) complete(transport, ticket);
}

inline void flush(Transport& transport) {
  drive(transport, [&] { return transport.sends_complete(); });
}

/// A label that tells calls apart.
inline Label label_of(int call) {
  Label label{};
  for (std::size_t i = 0; i < label.size(); ++i) label[i] = std::byte(call + static_cast<int>(i));
  return label;
}

/// Bytes that differ for every message and offset.
inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> data(bytes);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::size_t at = 0; at < bytes; at += sizeof state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(data.data() + at, &state, std::min(sizeof state, bytes - at));
  }
  return data;
}

inline std::vector<int> peers_of(const Transport& transport) {
  std::vector<int> peers;
  for (int step = 1; step < transport.size(); ++step) {
    peers.push_back((transport.rank() + step) % transport.size());
  }
  return peers;
}

}  // namespace agoq::test
