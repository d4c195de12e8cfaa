// A workload whose numbers all come from rank 0.
#pragma once

#include <cstdint>

#include "agoqcomm/communicator.h"
#include "osu/program.h"
#include "osu/values.h"

namespace agoq::bench::osu {

/// run() brings rank 0's buffer to the other ranks.
class FromRank0 : public Workload {
 public:
  FromRank0(Communicator& communicator, const Settings& settings, std::int64_t size)
      : communicator_(communicator), buffer_(settings.type, elements_of(size, settings.type)) {
    buffer_.fill(communicator.rank());
  }
  void clear() final {
    if (communicator_.rank() != 0) buffer_.clear();
  }
  bool is_right(bool quantized) const final {
    return osu::is_right(buffer_, [](std::int64_t index) { return value_of(0, index); }, quantized);
  }

 protected:
  Communicator& communicator_;
  Buffer buffer_;
};

}  // namespace agoq::bench::osu
