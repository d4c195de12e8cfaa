// osu_latency: a message from rank 0 to rank 1 and back, halved.
#include "osu/program.h"
#include "osu/values.h"

namespace agoq::bench::osu {
namespace {

class PingPong final : public Workload {
 public:
  PingPong(Communicator& communicator, const Settings& settings, std::int64_t size)
      : communicator_(communicator), buffer_(settings.type, elements_of(size, settings.type)) {
    buffer_.fill(communicator.rank());
  }
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
  void clear() override {
    if (communicator_.rank() == 1) buffer_.clear();
  }
  bool is_right(bool quantized) const override {
    return osu::is_right(buffer_, [](std::int64_t index) { return value_of(0, index); }, quantized);
  }

 private:
  Communicator& communicator_;
  Buffer buffer_;
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
