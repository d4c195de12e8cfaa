// osu_reduce_scatter: each rank gets its part of the sums; a message's size is the whole input's.
#include <vector>

#include "osu/program.h"
#include "osu/values.h"

namespace agoq::bench::osu {
namespace {

class ReduceScatter final : public Workload {
 public:
  ReduceScatter(Communicator& communicator, const Settings& settings, std::int64_t size)
      : communicator_(communicator),
        in_(settings.type, elements_of(size, settings.type)),
        out_(settings.type, 0) {
    in_.fill(communicator.rank());
    const int ranks = communicator.size();
    std::int64_t offset = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == communicator.rank()) offset_ = offset;
      counts_.push_back(in_.count() / ranks + (rank < in_.count() % ranks ? 1 : 0));
      chunks_.push_back(in_.at(offset));
      offset += counts_.back();
    }
    out_ = Buffer(settings.type, counts_[static_cast<std::size_t>(communicator.rank())]);
  }
  void run() override {
    communicator_.reduce_scatter(chunks_, counts_, out_.data(), in_.type(), ReduceOp::kSum);
  }
  void clear() override { out_.clear(); }
  bool is_right(bool quantized) const override {
    const int ranks = communicator_.size();
    return osu::is_right(
        out_, [&](std::int64_t index) { return sum_of(ranks, offset_ + index); }, quantized);
  }

 private:
  Communicator& communicator_;
  Buffer in_;
  Buffer out_;
  std::vector<std::int64_t> counts_;
  std::vector<const void*> chunks_;
  std::int64_t offset_ = 0;
};

}  // namespace
}  // namespace agoq::bench::osu

int main(int count, char** arguments) {
  using namespace agoq::bench::osu;
  return run_program({.title = "Reduce_scatter",
                      .description = "Reduce-scatter latency",
                      .operation = agoq::Operation::kReduceScatter,
                      .make_workload = make<ReduceScatter>},
                     count, arguments);
}
