// Latency and full-duplex bandwidth of the transports between two processes of this host, beside a
// plain loop of send() and recv() over loopback TCP.
//
//   transport_bench [--out FILE] [--repetitions N] [--megabytes N]
//
// Every repetition runs all methods one after another, and ratios are medians of per-repetition
// ratios to the plain loop, so that a busy machine hits all alike. "tcp" and "shm_copy" send from
// and receive into private memory; "shm" reads where the sender wrote. The result is JSON.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "agoqcomm/shm.h"
#include "agoqcomm/tcp.h"
#include "agoqcomm/version.h"

namespace agoq::bench {
namespace {

constexpr std::chrono::seconds kTimeout{60};

struct Settings {
  std::string out;
  int repetitions = 9;
  int megabytes = 64;  ///< Sent each way for one figure of bandwidth.
};

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Both processes call the same functions in the same order.
class Method {
 public:
  virtual ~Method() = default;
  /// One message each way, one after the other, `rounds` times.
  virtual void ping_pong(std::size_t bytes, int rounds) = 0;
  /// `count` messages each way, at the same time.
  virtual void stream(std::size_t bytes, int count) = 0;
};

/// What a good program would do with one connected socket and no protocol at all.
class PlainLoop final : public Method {
 public:
  PlainLoop(Store& store, int rank) : rank_(rank) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    bool good = true;
    if (rank == 0) {
      good = ::bind(listener, generic, bytes) == 0 && ::listen(listener, 1) == 0 &&
             ::getsockname(listener, generic, &bytes) == 0;
      store.set("plain/port", std::to_string(ntohs(address.sin_port)));
      fd_ = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      ::close(listener);
    } else {
      const int port = std::stoi(store.get("plain/port", Clock::now() + kTimeout));
      address.sin_port = htons(static_cast<std::uint16_t>(port));
      fd_ = listener;
      good = ::connect(fd_, generic, bytes) == 0;
    }
    if (!good || fd_ < 0) throw std::runtime_error("cannot connect the plain loop's sockets");
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~PlainLoop() override { ::close(fd_); }

  void ping_pong(std::size_t bytes, int rounds) override {
    resize(bytes);
    for (int i = 0; i < rounds; ++i) {
      rank_ == 0 ? move(bytes, 0) : move(0, bytes);
      rank_ == 0 ? move(0, bytes) : move(bytes, 0);
    }
  }
  void stream(std::size_t bytes, int count) override {
    resize(bytes);
    move(bytes * static_cast<std::size_t>(count), bytes * static_cast<std::size_t>(count));
  }

 private:
  void resize(std::size_t bytes) {
    out_.resize(std::max(out_.size(), bytes), std::byte{1});
    in_.resize(std::max(in_.size(), bytes));
  }

  void move(std::size_t to_send, std::size_t to_receive) {
    while (to_send + to_receive != 0) {
      bool moved = false;
      if (to_send != 0)
        moved |= step(to_send, ::send(fd_, out_.data(), within(to_send, out_), kNow));
      if (to_receive != 0) {
        moved |= step(to_receive, ::recv(fd_, in_.data(), within(to_receive, in_), kNow));
      }
      if (moved) continue;
      const int events = (to_send != 0 ? POLLOUT : 0) | (to_receive != 0 ? POLLIN : 0);
      pollfd request{fd_, static_cast<short>(events), 0};
      ::poll(&request, 1, 1000);
    }
  }

  static constexpr int kNow = MSG_DONTWAIT | MSG_NOSIGNAL;
  static std::size_t within(std::size_t left, const std::vector<std::byte>& memory) {
    return std::min(left, memory.size());
  }
  static bool step(std::size_t& left, ssize_t moved) {
    if (moved < 0 && errno == EAGAIN) return false;
    if (moved <= 0) throw std::runtime_error("the plain loop's peer is gone");
    left -= static_cast<std::size_t>(moved);
    return true;
  }

  int rank_;
  int fd_ = -1;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
};

class OverTransport final : public Method {
 public:
  /// `in_place`: through the transport's memory on both sides.
  OverTransport(std::shared_ptr<Transport> transport, bool in_place)
      : transport_(std::move(transport)), peer_(1 - transport_->rank()), in_place_(in_place) {}

  void ping_pong(std::size_t bytes, int rounds) override {
    begin(bytes, 1);
    const bool first = transport_->rank() == 0;
    for (int i = 0; i < rounds; ++i) {
      const Tag tag = static_cast<Tag>(i);
      receive(bytes, tag);
      if (first) send(bytes, tag);
      finish_receive();
      if (!first) send(bytes, tag);
    }
    finish();
  }

  void stream(std::size_t bytes, int count) override {
    begin(bytes, kWindow);
    for (int i = 0; i < count; ++i) {
      const Tag tag = static_cast<Tag>(i);
      // A receive is posted before the window is full, so the peer always finds one.
      if (i >= kWindow) finish_receive();
      receive(bytes, tag);
      send(bytes, tag);
    }
    while (!receives_.empty()) finish_receive();
    finish();
  }

 private:
  static constexpr int kWindow = 8;

  void begin(std::size_t bytes, int window) {
    transport_->begin_call(Label{});
    // Never smaller: what grows back would be filled again, on the clock.
    out_.resize(std::max(out_.size(), bytes), std::byte{1});
    in_.resize(std::max(in_.size(), bytes * static_cast<std::size_t>(window)));
    window_ = window;
  }

  void send(std::size_t bytes, Tag tag) {
    const std::span<const int> to(&peer_, 1);
    if (in_place_) {
      transport_->post_send(transport_->acquire(bytes), to, tag);
    } else {
      sends_.push_back(transport_->post_send(out_.data(), bytes, to, tag));
    }
  }

  void receive(std::size_t bytes, Tag tag) {
    const std::size_t place = static_cast<std::size_t>(tag) % static_cast<std::size_t>(window_);
    receives_.push_back(
        in_place_ ? transport_->post_receive(peer_, tag, bytes)
                  : transport_->post_receive(peer_, tag, in_.data() + place * bytes, bytes));
  }

  void await(Ticket ticket) {
    while (!transport_->test(ticket)) transport_->wait(Clock::now() + kTimeout);
    transport_->release(ticket);
  }

  void finish_receive() {
    await(receives_.front());
    receives_.erase(receives_.begin());
  }

  void finish() {
    for (const Ticket ticket : sends_) await(ticket);
    sends_.clear();
    while (!transport_->sends_complete()) transport_->wait(Clock::now() + kTimeout);
  }

  std::shared_ptr<Transport> transport_;
  int peer_;
  bool in_place_;
  int window_ = 1;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
  std::vector<Ticket> sends_;
  std::vector<Ticket> receives_;
};

/// What one method took at one size, one entry for each repetition. Seconds of the processor are
/// this process's: unlike the others they hold on a busy machine, too.
struct Figures {
  std::vector<double> wall;
  std::vector<double> processor;
};
using FiguresByMethod = std::map<std::string, Figures>;

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <typename Body>
void time_it(Figures& figures, Body&& body) {
  const double wall = now();
  const double processor = processor_seconds();
  body();
  figures.wall.push_back(now() - wall);
  figures.processor.push_back(processor_seconds() - processor);
}

double ratio(const std::vector<double>& plain, const std::vector<double>& other) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < plain.size(); ++i) ratios.push_back(plain[i] / other[i]);
  return median(ratios);
}

/// One row a method; `to_figure` turns the median seconds into what is reported as `unit`.
template <typename ToFigure>
void write_rows(std::ostream& out, const std::string& unit, std::size_t bytes,
                const FiguresByMethod& methods, ToFigure&& to_figure) {
  const Figures& plain = methods.at("plain");
  for (const auto& [name, figures] : methods) {
    out << "    {\"bytes\": " << bytes << ", \"method\": \"" << name << "\", \"" << unit
        << "\": " << to_figure(median(figures.wall))
        << ", \"speed_against_plain\": " << ratio(plain.wall, figures.wall)
        << ", \"processor_speed_against_plain\": " << ratio(plain.processor, figures.processor)
        << "},\n";
  }
}

std::string measure(const Settings& settings, Store& store, int rank) {
  std::map<std::string, std::unique_ptr<Method>> methods;
  methods["plain"] = std::make_unique<PlainLoop>(store, rank);
  methods["tcp"] = std::make_unique<OverTransport>(make_tcp_transport(store, rank, 2), false);
  const std::shared_ptr<Transport> shm = make_shm_transport(store, rank, 2);
  methods["shm"] = std::make_unique<OverTransport>(shm, true);
  methods["shm_copy"] = std::make_unique<OverTransport>(shm, false);

  std::ostringstream json;
  json.precision(4);
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{4} << 10, std::size_t{64} << 10}) {
    constexpr int kRounds = 500;
    FiguresByMethod figures;
    for (int repetition = 0; repetition < settings.repetitions; ++repetition) {
      for (auto& [name, method] : methods) {
        method->ping_pong(bytes, 20);
        time_it(figures[name], [&] { method->ping_pong(bytes, kRounds); });
      }
    }
    write_rows(json, "one_way_us", bytes, figures,
               [](double seconds) { return 1e6 * seconds / (2 * kRounds); });
  }
  for (std::size_t bytes = std::size_t{64} << 10; bytes <= std::size_t{1} << 20; bytes *= 4) {
    const std::size_t total = static_cast<std::size_t>(settings.megabytes) << 20;
    FiguresByMethod figures;
    for (int repetition = 0; repetition < settings.repetitions; ++repetition) {
      for (auto& [name, method] : methods) {
        method->ping_pong(1, 10);
        time_it(figures[name], [&] {
          method->stream(bytes, static_cast<int>(total / bytes));
          method->ping_pong(1, 1);
        });
      }
    }
    write_rows(json, "both_ways_gb_per_s", bytes, figures,
               [&](double seconds) { return 2e-9 * static_cast<double>(total) / seconds; });
  }
  std::string rows = json.str();
  rows.erase(rows.size() - 2);  // The last comma.
  return std::string("{\n  \"version\": \"") + version() + "\",\n  \"rows\": [\n" + rows +
         "\n  ]\n}\n";
}

Settings parse(int count, char** arguments) {
  Settings settings;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = arguments[i];
    const std::string value = arguments[i + 1];
    if (name == "--out") {
      settings.out = value;
    } else if (name == "--repetitions") {
      settings.repetitions = std::max(1, std::stoi(value));
    } else if (name == "--megabytes") {
      settings.megabytes = std::max(1, std::stoi(value));
    } else {
      throw std::invalid_argument("unknown option " + name);
    }
  }
  if (count % 2 == 0) throw std::invalid_argument("every option takes a value");
  return settings;
}

std::uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound = ::bind(fd, generic, bytes) == 0 && ::getsockname(fd, generic, &bytes) == 0;
  ::close(fd);
  if (!bound) throw std::runtime_error("no port is free on loopback");
  return ntohs(address.sin_port);
}

int run(int count, char** arguments) {
  const Settings settings = parse(count, arguments);
  const std::uint16_t port = free_port();
  const pid_t child = ::fork();
  const int rank = child == 0 ? 1 : 0;
  std::string json;
  {
    const auto store = make_tcp_store("127.0.0.1", port, rank, 2, kTimeout);
    json = measure(settings, *store, rank);
  }
  if (rank == 1) return 0;
  int status = 0;
  ::waitpid(child, &status, 0);
  if (settings.out.empty()) {
    std::cout << json;
  } else {
    std::ofstream(settings.out) << json;
  }
  return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace agoq::bench

int main(int count, char** arguments) {
  try {
    return agoq::bench::run(count, arguments);
  } catch (const std::exception& error) {
    std::cerr << "transport_bench: " << error.what() << "\n";
    return 1;
  }
}
