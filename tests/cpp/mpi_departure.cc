// mpi_departure FAULT, started by mpirun: rank 1 is killed, or exits without a word to MPI, in the
// middle of all-reduces. Each rank prints its process's number first, and what it is told.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "agoqcomm/communicator.h"
#include "agoqcomm/error.h"
#include "mpi_ranks.h"

namespace agoq::test {
namespace {

void depart(const std::string& fault) {
  std::this_thread::sleep_for(50ms);
  if (fault == "killed") ::kill(::getpid(), SIGKILL);
  std::_Exit(3);
}

void run(const std::string& fault) {
  Options options;
  options.timeout = 4s;
  Communicator communicator(make_mpi_transport(MPI_Comm_c2f(MPI_COMM_WORLD)), options);
  std::printf("process %d\n", static_cast<int>(::getpid()));
  std::fflush(stdout);
  std::vector<float> values(1 << 18, 1.0f);
  const auto sum = [&] {
    communicator.all_reduce(values.data(), values.data(), std::ssize(values), DataType::kFloat32,
                            ReduceOp::kAvg);
  };
  sum();
  if (communicator.rank() == 1) std::thread([fault] { depart(fault); }).detach();
  while (true) sum();
}

}  // namespace
}  // namespace agoq::test

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  try {
    agoq::test::run(argc > 1 ? argv[1] : "");
  } catch (const agoq::Error& error) {
    std::printf("told: %s\n", error.what());
    std::fflush(stdout);
    // What is left of the job cannot finalize MPI together.
    std::_Exit(4);
  }
}
