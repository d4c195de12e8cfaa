// osu_alltoall: every rank has a part for every rank; a message's size is one part's.
#include <vector>

#include "osu/program.h"
#include "osu/values.h"

namespace agoq::bench::osu {
namespace {

class AllToAll final : public Workload {
 public:
  AllToAll(Communicator& communicator, const Settings& settings, std::int64_t size)
      : communicator_(communicator),
        part_(elements_of(size, settings.type)),
        in_(settings.type, part_ * communicator.size()),
        out_(settings.type, in_.count()),
        counts_(static_cast<std::size_t>(communicator.size()), part_) {
    in_.fill(communicator.rank());
    for (int rank = 0; rank < communicator.size(); ++rank) {
      in_parts_.push_back(in_.at(rank * part_));
      out_parts_.push_back(out_.at(rank * part_));
    }
  }
  void run() override {
    communicator_.all_to_all(in_parts_, counts_, out_parts_, counts_, in_.type());
  }
  void clear() override { out_.clear(); }
  bool is_right(bool quantized) const override {
    const auto expected = [part = part_, own = communicator_.rank()](std::int64_t index) {
      return value_of(static_cast<int>(index / part), own * part + index % part);
    };
    return osu::is_right(out_, expected, quantized);
  }

 private:
  Communicator& communicator_;
  const std::int64_t part_;
  Buffer in_;
  Buffer out_;
  std::vector<std::int64_t> counts_;
  std::vector<const void*> in_parts_;
  std::vector<void*> out_parts_;
};

}  // namespace
}  // namespace agoq::bench::osu

int main(int count, char** arguments) {
  using namespace agoq::bench::osu;
  return run_program({.title = "Alltoall",
                      .description = "All-to-all latency",
                      .operation = agoq::Operation::kAllToAll,
                      .make_workload = make<AllToAll>},
                     count, arguments);
}
