#include <stdexcept>

#include "osu/ranks.h"

namespace agoq::bench::osu {

int run_under_mpirun(const std::function<int(const Place&, const MakeTransport&)>&) {
  throw std::runtime_error(
      "this build knows no MPI: configure with -DAGOQ_MPI=ON, or start the ranks with --launch N");
}

}  // namespace agoq::bench::osu
