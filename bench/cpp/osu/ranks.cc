#include "osu/ranks.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <vector>

#include "agoqcomm/auto.h"
#include "agoqcomm/shm.h"
#include "agoqcomm/tcp.h"
#include "agoqcomm/topology.h"

namespace agoq::bench::osu {
namespace {

constexpr std::chrono::seconds kTimeout{60};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set beside RANK");
  return value;
}

Place place_by_environment() {
  Place place;
  place.rank = std::stoi(variable("RANK"));
  place.size = std::stoi(variable("WORLD_SIZE"));
  place.host = variable("MASTER_ADDR");
  place.port = static_cast<std::uint16_t>(std::stoi(variable("MASTER_PORT")));
  // torchrun's own store may sit at that port; the next one is ours then.
  const char* const agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (agent != nullptr && std::string(agent) == "True") ++place.port;
  return place;
}

std::unique_ptr<Transport> make_transport(const std::string& name, Store& store,
                                          const Place& place) {
  TransportConfig config;
  config.timeout = kTimeout;
  if (name == "auto") return make_auto_transport(store, place.rank, place.size, config);
  if (name == "tcp") return make_tcp_transport(store, place.rank, place.size, config);
  if (name == "shm") return make_shm_transport(store, place.rank, place.size, config);
  throw std::invalid_argument("--transport " + name + ": known are auto, tcp, shm, and mpi where " +
                              "mpirun starts the program");
}

Topology find_topology(Store& store, const Place& place) {
  store.set("node/" + std::to_string(place.rank), node_identity());
  std::vector<std::string> names;
  for (int rank = 0; rank < place.size; ++rank) {
    names.push_back(store.get("node/" + std::to_string(rank), Clock::now() + kTimeout));
  }
  return Topology::from_names(names);
}

int run_rank(const Settings& settings, const Place& place,
             const std::function<int(Communicator&)>& body, const MakeTransport& make_mpi) {
  const auto store = make_tcp_store(place.host, place.port, place.rank, place.size, kTimeout);
  Options options;
  options.timeout = kTimeout;
  options.quantize_all_reduce = options.quantize_reduce_scatter = options.quantize_all_gather =
      !settings.exact;
  const bool over_mpi = settings.transport == "mpi" && make_mpi;
  Communicator communicator(
      over_mpi ? make_mpi() : make_transport(settings.transport, *store, place), options,
      find_topology(*store, place));
  return body(communicator);
}

int fork_ranks(int size, const std::function<int(const Place&)>& run) {
  const std::uint16_t port = free_port();
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) throw std::runtime_error("cannot fork a rank");
    if (child == 0) {
      int status = 1;
      try {
        status = run({rank, size, "127.0.0.1", port});
      } catch (const std::exception& error) {
        std::cerr << "rank " << rank << ": " << error.what() << std::endl;
      }
      std::cout.flush();
      ::_exit(status);
    }
    children.push_back(child);
  }
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}

}  // namespace

std::uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t bytes = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound = ::bind(fd, generic, bytes) == 0 && ::getsockname(fd, generic, &bytes) == 0;
  if (!bound) throw std::runtime_error("no port is free on this host");
  // The socket stays, so that nobody but the store, which reuses addresses, gets the port.
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return ntohs(address.sin_port);
}

bool is_under_mpirun() {
  const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
  return is_set("OMPI_COMM_WORLD_RANK") || is_set("PMI_RANK") || is_set("PMIX_RANK");
}

int run_on_ranks(const Settings& settings, const std::function<int(Communicator&)>& body) {
  if (settings.launch != 0) {
    return fork_ranks(settings.launch,
                      [&](const Place& place) { return run_rank(settings, place, body, {}); });
  }
  if (std::getenv("RANK") != nullptr) return run_rank(settings, place_by_environment(), body, {});
  if (is_under_mpirun()) {
    return run_under_mpirun([&](const Place& place, const MakeTransport& make_mpi) {
      return run_rank(settings, place, body, make_mpi);
    });
  }
  throw std::runtime_error(
      "no launcher has started this program: add --launch 2, or use torchrun --no-python or "
      "mpirun");
}

}  // namespace agoq::bench::osu
