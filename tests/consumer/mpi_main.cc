// An MPI program that averages over the communicator it has: started by mpirun.
#include <agoqcomm/communicator.h>
#include <agoqcomm/error.h>
#include <agoqcomm/mpi.h>
#include <mpi.h>

#include <cmath>
#include <iostream>
#include <vector>

namespace {

bool average(int rank, int size) {
  agoq::Communicator communicator(agoq::make_mpi_transport(MPI_Comm_c2f(MPI_COMM_WORLD)),
                                  agoq::Options());
  std::vector<float> gradients(1 << 20, static_cast<float>(rank + 1));
  communicator.all_reduce(gradients.data(), gradients.data(), std::ssize(gradients),
                          agoq::DataType::kFloat32, agoq::ReduceOp::kAvg);
  const float expected = 0.5f * static_cast<float>(size + 1);
  if (rank == 0) std::cout << communicator.describe() << "average " << gradients[0] << '\n';
  return std::abs(gradients[0] - expected) < 0.01f * expected;
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  bool good = false;
  try {
    good = average(rank, size);
  } catch (const agoq::Error& error) {
    std::cout << error.what() << '\n';
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
