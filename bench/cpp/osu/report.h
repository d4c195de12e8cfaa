// OMB's text: what reads the output of the OSU micro-benchmarks reads this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "osu/program.h"

namespace agoq::bench::osu {

/// One size; times over the ranks, of each rank's mean time a message.
struct Row {
  std::int64_t size = 0;
  int calls = 0;
  double average_us = 0;
  double minimum_us = 0;
  double maximum_us = 0;
  std::optional<bool> right = {};  ///< Unset where nothing was validated.
};

class Report {
 public:
  /// Prints the header at once; `prints` on one rank only.
  Report(const Program& program, const Settings& settings, bool prints);

  void add(const Row& row);

 private:
  void print(const std::string& first, const std::vector<std::string>& fields) const;

  Kind kind_;
  bool full_;
  bool prints_;
};

}  // namespace agoq::bench::osu
