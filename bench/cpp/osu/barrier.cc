// osu_barrier: until every rank has called.
#include "osu/program.h"

namespace agoq::bench::osu {
namespace {

class Barrier final : public Workload {
 public:
  Barrier(Communicator& communicator, const Settings&, std::int64_t)
      : communicator_(communicator) {}
  void run() override { communicator_.barrier(); }

 private:
  Communicator& communicator_;
};

}  // namespace
}  // namespace agoq::bench::osu

int main(int count, char** arguments) {
  using namespace agoq::bench::osu;
  return run_program({.title = "Barrier",
                      .description = "Barrier latency",
                      .kind = Kind::kUnsized,
                      .operation = agoq::Operation::kBarrier,
                      .make_workload = make<Barrier>},
                     count, arguments);
}
