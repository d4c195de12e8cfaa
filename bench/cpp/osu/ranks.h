// How the ranks of a program find each other: under torchrun, under mpirun, or forked here.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agoqcomm/communicator.h"
#include "agoqcomm/store.h"
#include "osu/settings.h"

namespace agoq::bench::osu {

/// This process among the ranks.
struct Place {
  int rank = 0;
  int size = 1;
  std::string host;  ///< Of rank 0's store.
  std::uint16_t port = 0;
};

/// Makes the group that the settings ask for and gives it to `body`, whose result is the process's
/// exit status. With --launch the body runs in forked processes, and the worst status is returned.
/// Throws std::exception with words for the user.
int run_on_ranks(const Settings& settings, const std::function<int(Communicator&)>& body);

/// A port of this host, kept for a store that this process or its children serve.
std::uint16_t free_port();

/// Whether mpirun has started this process, as its environment says.
bool is_under_mpirun();

/// The same with MPI's help, in builds that have it; throws std::runtime_error in others. `body`
/// gets this rank's place and a function that makes the mpi transport.
using MakeTransport = std::function<std::unique_ptr<Transport>()>;
int run_under_mpirun(const std::function<int(const Place&, const MakeTransport&)>& body);

}  // namespace agoq::bench::osu
