// osu_bcast: rank 0's buffer on every rank; a message's size is the buffer's.
#include "osu/program.h"
#include "osu/values.h"

namespace agoq::bench::osu {
namespace {

class Broadcast final : public Workload {
 public:
  Broadcast(Communicator& communicator, const Settings& settings, std::int64_t size)
      : communicator_(communicator), buffer_(settings.type, elements_of(size, settings.type)) {
    buffer_.fill(communicator.rank());
  }
  void run() override {
    communicator_.broadcast(buffer_.data(), buffer_.count(), buffer_.type(), 0);
  }
  void clear() override {
    if (communicator_.rank() != 0) buffer_.clear();
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
  return run_program({.title = "Broadcast",
                      .description = "Broadcast latency",
                      .operation = agoq::Operation::kBroadcast,
                      .make_workload = make<Broadcast>},
                     count, arguments);
}
