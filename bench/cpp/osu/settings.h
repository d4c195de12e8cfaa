// The command line of the OSU-style programs: the flags of the OSU micro-benchmarks, and a few of
// ours.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agoqcomm/types.h"

namespace agoq::bench::osu {

/// What a program measures where the command line says nothing; the numbers are OMB's.
struct Defaults {
  std::int64_t least_size = 4;
  std::int64_t most_size = 1 << 20;
  DataType type = DataType::kFloat32;
  /// Timed and untimed calls a size, and those of sizes over 8 KiB.
  int iterations = 1000;
  int warmup = 100;
  int large_iterations = 100;
  int large_warmup = 10;
};

struct Settings {
  std::int64_t least_size = 0;
  std::int64_t most_size = 0;
  std::optional<int> iterations;
  std::optional<int> warmup;
  bool validate = false;
  bool full = false;
  DataType type = DataType::kFloat32;
  std::string transport = "auto";
  bool exact = false;
  int launch = 0;  ///< Ranks that the program starts itself; 0: a launcher has started them.
};

/// Ends the program after -h. Throws std::exception with words for the user.
Settings parse(int count, char** arguments, const std::string& description,
               const Defaults& defaults);

/// Bytes: "65536", "64K", "64M", "1G".
std::int64_t parse_size(const std::string& text);

/// Doubling, from least_size to most_size.
std::vector<std::int64_t> sizes(const Settings& settings);

struct Calls {
  int timed;
  int untimed;
};
Calls calls(const Settings& settings, const Defaults& defaults, std::int64_t size);

}  // namespace agoq::bench::osu
