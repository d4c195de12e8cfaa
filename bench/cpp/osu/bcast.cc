// osu_bcast: rank 0's buffer on every rank; a message's size is the buffer's.
#include "osu/from_rank_0.h"
#include "osu/program.h"

namespace agoq::bench::osu {
namespace {

class Broadcast final : public FromRank0 {
 public:
  using FromRank0::FromRank0;
  void run() override {
    communicator_.broadcast(buffer_.data(), buffer_.count(), buffer_.type(), 0);
  }
};

}  // namespace
}  // namespace agoq::bench::osu

int main(int count, char** arguments) {
  using namespace agoq::bench::osu;
  return run_program({.title = "Broadcast",
                      .description = "Broadcast latency",
                      .operation = agoq::Operation::kBroadcast,
                      .make_workload = make<Broadcast>},
                     count, arguments);
}
