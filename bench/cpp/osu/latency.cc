// osu_latency: a message from rank 0 to rank 1 and back, halved.
#include "osu/from_rank_0.h"
#include "osu/program.h"

namespace agoq::bench::osu {
namespace {

class PingPong final : public FromRank0 {
 public:
  using FromRank0::FromRank0;
  void run() override {
    const int peer = 1 - communicator_.rank();
    if (communicator_.rank() == 0) {
      communicator_.send(buffer_.data(), buffer_.count(), buffer_.type(), peer);
    }
    communicator_.receive(buffer_.data(), buffer_.count(), buffer_.type(), peer);
    if (communicator_.rank() == 1) {
      communicator_.send(buffer_.data(), buffer_.count(), buffer_.type(), peer);
    }
  }
};

}  // namespace
}  // namespace agoq::bench::osu

int main(int count, char** arguments) {
  using namespace agoq::bench::osu;
  return run_program({.title = "Point-to-point",
                      .description = "Latency between two ranks",
                      .kind = Kind::kLatency,
                      .operation = agoq::Operation::kSend,
                      .defaults = {.least_size = 1,
                                   .most_size = 4 << 20,
                                   .type = agoq::DataType::kInt8,
                                   .iterations = 10'000,
                                   .large_iterations = 1000},
                      .make_workload = make<PingPong>},
                     count, arguments);
}
