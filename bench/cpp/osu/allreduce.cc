// osu_allreduce: sums over the ranks; a message's size is the buffer's.
#include "osu/program.h"
#include "osu/values.h"

namespace agoq::bench::osu {
namespace {

class AllReduce final : public Workload {
 public:
  AllReduce(Communicator& communicator, const Settings& settings, std::int64_t size)
      : communicator_(communicator),
        in_(settings.type, elements_of(size, settings.type)),
        out_(settings.type, in_.count()) {
    in_.fill(communicator.rank());
  }
  void run() override {
    communicator_.all_reduce(in_.data(), out_.data(), in_.count(), in_.type(), ReduceOp::kSum);
  }
  void clear() override { out_.clear(); }
  bool is_right(bool quantized) const override {
    const int ranks = communicator_.size();
    return osu::is_right(out_, [&](std::int64_t index) { return sum_of(ranks, index); }, quantized);
  }

 private:
  Communicator& communicator_;
  Buffer in_;
  Buffer out_;
};

}  // namespace
}  // namespace agoq::bench::osu

int main(int count, char** arguments) {
  using namespace agoq::bench::osu;
  return run_program({.title = "Allreduce",
                      .description = "All-reduce latency",
                      .operation = agoq::Operation::kAllReduce,
                      .make_workload = make<AllReduce>},
                     count, arguments);
}
