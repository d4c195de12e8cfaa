#include "transport/mesh/rendezvous.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <map>

#include "transport/mesh/hello.h"
#include "transport/mesh/system_error.h"

namespace agoq {
namespace {

using std::chrono::milliseconds;

// A peer sends its hello with the connection; who is silent for this long is none.
constexpr auto kHelloTime = milliseconds(2000);
// Connections whose hello is awaited; the oldest goes when there are more.
constexpr std::size_t kMaxUnknown = 256;
constexpr auto kRetry = milliseconds(20);

struct Published {
  Endpoint endpoint;
  Secret secret{};
};

std::string serialize(const Published& published) {
  return std::string(published.secret.begin(), published.secret.end()) +
         published.endpoint.serialize();
}

Published deserialize(const std::string& bytes) {
  Published published;
  const std::size_t secret_bytes = std::min(bytes.size(), published.secret.size());
  std::memcpy(published.secret.data(), bytes.data(), secret_bytes);
  published.endpoint = Endpoint::deserialize(std::string_view(bytes).substr(secret_bytes));
  return published;
}

/// Sends all of `hello`, which a fresh socket buffer always holds; false where the peer is gone.
bool send_hello(int fd, const Hello& hello, int pass_fd) {
  iovec data{const_cast<Hello*>(&hello), sizeof hello};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (pass_fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &pass_fd, sizeof pass_fd);
  }
  return ::sendmsg(fd, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof hello);
}

/// A hello on its way in, with the descriptor that came along.
struct HelloReader {
  enum class State { kPartial, kDone, kBroken };

  State read(int fd) {
    while (got < sizeof(Hello)) {
      iovec data{reinterpret_cast<char*>(&hello) + got, sizeof(Hello) - got};
      msghdr message{};
      alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
      message.msg_iov = &data;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      const ssize_t count = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
      if (count < 0 && is_retry(errno)) return State::kPartial;
      if (count <= 0) return State::kBroken;
      take_descriptors(message);
      got += static_cast<std::size_t>(count);
    }
    return State::kDone;
  }

  Hello hello;
  std::size_t got = 0;
  UniqueFd passed;

 private:
  void take_descriptors(msghdr& message) {
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
        passed.reset(fd);  // Of several the last is kept; no peer sends several.
      }
    }
  }
};

/// A connection of this rank's to a lower one.
struct Call {
  enum class State { kIdle, kConnecting, kAwaitsReply, kDone } state = State::kIdle;
  int peer = 0;
  Published to;
  UniqueFd fd;
  HelloReader reader;
  Clock::time_point not_before{};
  std::string problem = "it has not answered";
};

/// A connection that may be a higher rank's.
struct Unknown {
  UniqueFd fd;
  HelloReader reader;
  Clock::time_point expires;
};

class Rendezvous {
 public:
  Rendezvous(Store& store, const Meeting& meeting, const Endpoint& own)
      : store_(store), meeting_(meeting), listener_(listen_at(own)) {
    published_ = {Endpoint::of_socket(listener_.get()), random_secret()};
  }

  std::vector<PeerSocket> run() {
    store_.set(key_of(meeting_.rank), serialize(published_));
    for (const int peer : meeting_.peers) {
      if (peer > meeting_.rank) {
        awaited_[peer];
        continue;
      }
      Call call;
      call.peer = peer;
      call.to = deserialize(store_.get(key_of(peer), meeting_.deadline));
      calls_.push_back(std::move(call));
    }
    while (!is_done()) {
      if (Clock::now() >= meeting_.deadline) throw_late();
      step();
    }
    return results();
  }

 private:
  std::string key_of(int rank) const { return meeting_.key + "/" + std::to_string(rank); }

  bool is_done() const {
    return std::all_of(calls_.begin(), calls_.end(),
                       [](const Call& call) { return call.state == Call::State::kDone; }) &&
           std::all_of(awaited_.begin(), awaited_.end(),
                       [](const auto& entry) { return static_cast<bool>(entry.second.fd); });
  }

  void step() {
    const auto now = Clock::now();
    auto until = std::min(meeting_.deadline, now + kRetry);
    std::vector<pollfd> fds;
    for (Call& call : calls_) {
      if (call.state == Call::State::kIdle && now >= call.not_before) start(call);
      const short events = call.state == Call::State::kConnecting ? POLLOUT : POLLIN;
      const bool open = call.fd && call.state != Call::State::kDone;
      fds.push_back({open ? call.fd.get() : -1, events, 0});
    }
    while (!unknown_.empty() && unknown_.front().expires <= now) unknown_.pop_front();
    for (const Unknown& unknown : unknown_) fds.push_back({unknown.fd.get(), POLLIN, 0});
    fds.push_back({listener_.get(), POLLIN, 0});

    const auto timeout = std::chrono::ceil<milliseconds>(until - now);
    if (::poll(fds.data(), fds.size(), static_cast<int>(timeout.count())) <= 0) return;
    std::size_t at = 0;
    for (Call& call : calls_) {
      if (fds[at++].revents != 0) advance(call);
    }
    for (auto unknown = unknown_.begin(); unknown != unknown_.end();) {
      unknown =
          fds[at++].revents != 0 && !admit(*unknown) ? unknown_.erase(unknown) : std::next(unknown);
    }
    if (fds[at].revents != 0) accept_all();
  }

  void start(Call& call) {
    call.fd = make_socket(call.to.endpoint.family());
    call.reader = HelloReader{};
    const Endpoint& to = call.to.endpoint;
    if (::connect(call.fd.get(), to.address(), to.bytes()) == 0 || errno == EINPROGRESS) {
      call.state = Call::State::kConnecting;
    } else {
      retry(call, error_text(errno));
    }
  }

  /// A full backlog, or a crowd of strangers that pushed this connection out, passes.
  void retry(Call& call, const std::string& problem) {
    call.fd.reset();
    call.state = Call::State::kIdle;
    call.problem = problem;
    call.not_before = Clock::now() + kRetry;
  }

  void advance(Call& call) {
    if (call.state == Call::State::kConnecting) {
      int error = 0;
      socklen_t bytes = sizeof error;
      ::getsockopt(call.fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
      if (error != 0) return retry(call, error_text(error));
      const Hello hello = make_hello(meeting_.rank, call.peer, call.to.secret);
      if (!send_hello(call.fd.get(), hello, meeting_.pass_fd)) {
        return retry(call, error_text(errno));
      }
      call.state = Call::State::kAwaitsReply;
      return;
    }
    switch (call.reader.read(call.fd.get())) {
      case HelloReader::State::kPartial:
        return;
      case HelloReader::State::kBroken:
        return retry(call, "it closed the connection before it had greeted");
      case HelloReader::State::kDone:
        break;
    }
    if (!is_valid(call.reader.hello, meeting_.rank, published_.secret) ||
        call.reader.hello.from != static_cast<std::uint32_t>(call.peer)) {
      return retry(call, "what answers there does not know the group's secret");
    }
    call.state = Call::State::kDone;
  }

  void accept_all() {
    for (;;) {
      UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd) return;
      if (unknown_.size() == kMaxUnknown) unknown_.pop_front();
      Unknown unknown;
      unknown.fd = std::move(fd);
      unknown.expires = Clock::now() + kHelloTime;
      unknown_.push_back(std::move(unknown));
    }
  }

  /// False once the connection is no longer unknown: a peer's, or closed.
  bool admit(Unknown& unknown) {
    const auto state = unknown.reader.read(unknown.fd.get());
    if (state == HelloReader::State::kPartial) return true;
    const Hello& hello = unknown.reader.hello;
    if (state == HelloReader::State::kBroken ||
        !is_valid(hello, meeting_.rank, published_.secret)) {
      return false;
    }
    const auto found = awaited_.find(static_cast<int>(hello.from));
    if (found == awaited_.end()) return false;
    // Whoever knows the secret is a rank of the group, so its own secret is in the store by now.
    const Published theirs = deserialize(store_.get(key_of(found->first), meeting_.deadline));
    const Hello reply = make_hello(meeting_.rank, found->first, theirs.secret);
    if (!send_hello(unknown.fd.get(), reply, meeting_.pass_fd)) return false;
    // A peer that connects again has lost its first connection.
    found->second.fd = std::move(unknown.fd);
    found->second.passed = std::move(unknown.reader.passed);
    found->second.address = theirs.endpoint.to_string();
    return false;
  }

  [[noreturn]] void throw_late() const {
    for (const Call& call : calls_) {
      if (call.state == Call::State::kDone) continue;
      throw Error(ErrorCode::kTimeout,
                  "rank " + std::to_string(meeting_.rank) + " Timed out connecting to rank " +
                      std::to_string(call.peer) + " at " + call.to.endpoint.to_string() + ": " +
                      call.problem,
                  call.peer);
    }
    for (const auto& [peer, socket] : awaited_) {
      if (socket.fd) continue;
      throw Error(ErrorCode::kTimeout,
                  "rank " + std::to_string(meeting_.rank) + " Timed out waiting for rank " +
                      std::to_string(peer) + " to connect to " + published_.endpoint.to_string(),
                  peer);
    }
    throw Error(ErrorCode::kTimeout, "the deadline for meeting the peers has passed");
  }

  std::vector<PeerSocket> results() {
    std::vector<PeerSocket> sockets;
    for (Call& call : calls_) {
      sockets.push_back({call.peer, std::move(call.fd), call.to.endpoint.to_string(),
                         std::move(call.reader.passed)});
    }
    for (auto& [peer, socket] : awaited_) {
      sockets.push_back({peer, std::move(socket.fd), socket.address, std::move(socket.passed)});
    }
    return sockets;
  }

  Store& store_;
  const Meeting& meeting_;
  UniqueFd listener_;
  Published published_;
  std::vector<Call> calls_;
  std::map<int, PeerSocket> awaited_;
  std::list<Unknown> unknown_;
};

}  // namespace

std::vector<PeerSocket> meet(Store& store, const Meeting& meeting, const Endpoint& own) {
  if (meeting.peers.empty()) return {};
  return Rendezvous(store, meeting, own).run();
}

std::optional<std::string> agree(Store& store, const std::string& key, int rank,
                                 const std::vector<int>& ranks,
                                 const std::optional<std::string>& problem,
                                 Clock::time_point deadline) {
  // "" stands for no problem, so a problem is marked.
  store.set(key + "/" + std::to_string(rank), problem ? "!" + *problem : "");
  std::optional<std::string> first;
  for (const int other : ranks) {
    const std::string said = store.get(key + "/" + std::to_string(other), deadline);
    if (!said.empty() && !first) first = "rank " + std::to_string(other) + ": " + said.substr(1);
  }
  return first;
}

}  // namespace agoq
