// osu_allgather: every rank's part on every rank; a message's size is one rank's part.
#include <vector>

#include "osu/program.h"
#include "osu/values.h"

namespace agoq::bench::osu {
namespace {

class AllGather final : public Workload {
 public:
  AllGather(Communicator& communicator, const Settings& settings, std::int64_t size)
      : communicator_(communicator),
        in_(settings.type, elements_of(size, settings.type)),
        out_(settings.type, in_.count() * communicator.size()),
        counts_(static_cast<std::size_t>(communicator.size()), in_.count()) {
    in_.fill(communicator.rank());
    for (int rank = 0; rank < communicator.size(); ++rank) {
      chunks_.push_back(out_.at(rank * in_.count()));
    }
  }
  void run() override { communicator_.all_gather(in_.data(), chunks_, counts_, in_.type()); }
  void clear() override { out_.clear(); }
  bool is_right(bool quantized) const override {
    const auto expected = [part = in_.count()](std::int64_t index) {
      return value_of(static_cast<int>(index / part), index % part);
    };
    return osu::is_right(out_, expected, quantized);
  }

 private:
  Communicator& communicator_;
  Buffer in_;
  Buffer out_;
  std::vector<std::int64_t> counts_;
  std::vector<void*> chunks_;
};

}  // namespace
}  // namespace agoq::bench::osu

int main(int count, char** arguments) {
  using namespace agoq::bench::osu;
  return run_program({.title = "Allgather",
                      .description = "All-gather latency, quantized unless --exact",
                      .operation = agoq::Operation::kAllGather,
                      .make_workload = make<AllGather>},
                     count, arguments);
}
