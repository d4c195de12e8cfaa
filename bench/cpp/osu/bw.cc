// osu_bw: a window of messages from rank 0 to rank 1, one after the other, and an answer.
#include "osu/from_rank_0.h"
#include "osu/program.h"
#include "osu/values.h"

namespace agoq::bench::osu {
namespace {

class Window final : public FromRank0 {
 public:
  Window(Communicator& communicator, const Settings& settings, std::int64_t size)
      : FromRank0(communicator, settings, size), answer_(settings.type, 1) {}
  void run() override {
    if (communicator_.rank() == 0) {
      for (int message = 0; message < kWindow; ++message) {
        communicator_.send(buffer_.data(), buffer_.count(), buffer_.type(), 1);
      }
      communicator_.receive(answer_.data(), 1, answer_.type(), 1);
    } else {
      for (int message = 0; message < kWindow; ++message) {
        communicator_.receive(buffer_.data(), buffer_.count(), buffer_.type(), 0);
      }
      communicator_.send(answer_.data(), 1, answer_.type(), 0);
    }
  }

 private:
  Buffer answer_;
};

}  // namespace
}  // namespace agoq::bench::osu

int main(int count, char** arguments) {
  using namespace agoq::bench::osu;
  return run_program({.title = "Point-to-point",
                      .description = "Bandwidth from rank 0 to rank 1",
                      .kind = Kind::kBandwidth,
                      .operation = agoq::Operation::kSend,
                      .defaults = {.least_size = 1,
                                   .most_size = 4 << 20,
                                   .type = agoq::DataType::kInt8,
                                   .iterations = 100,
                                   .warmup = 10,
                                   .large_iterations = 20,
                                   .large_warmup = 2},
                      .make_workload = make<Window>},
                     count, arguments);
}
