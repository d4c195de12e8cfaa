#include "osu/settings.h"

#include <cctype>
#include <cstdlib>
#include <cxxopts.hpp>
#include <iostream>
#include <map>
#include <stdexcept>

namespace agoq::bench::osu {
namespace {

constexpr std::int64_t kLargeSize = 8 << 10;

const std::map<std::string, DataType>& types() {
  static const std::map<std::string, DataType> known = {
      {"float32", DataType::kFloat32},   {"bfloat16", DataType::kBfloat16},
      {"float64", DataType::kFloat64},   {"int8", DataType::kInt8},
      {"int32", DataType::kInt32},       {"int64", DataType::kInt64},
      {"mpi_float", DataType::kFloat32}, {"mpi_int", DataType::kInt32},
      {"mpi_char", DataType::kInt8},
  };
  return known;
}

// "MIN:MAX", "MIN:", ":MAX" or "MAX".
void read_sizes(const std::string& text, Settings& settings) {
  const std::size_t colon = text.find(':');
  const std::string least = colon == std::string::npos ? "" : text.substr(0, colon);
  const std::string most = colon == std::string::npos ? text : text.substr(colon + 1);
  if (!least.empty()) settings.least_size = parse_size(least);
  if (!most.empty()) settings.most_size = parse_size(most);
  if (settings.least_size < 1 || settings.least_size > settings.most_size) {
    throw std::invalid_argument("-m " + text + " needs 0 < MIN <= MAX");
  }
}

DataType read_type(const std::string& name) {
  const auto type = types().find(name);
  if (type == types().end()) {
    throw std::invalid_argument("-T " + name + " is not known; see -h");
  }
  return type->second;
}

void require_at_least(int least, const std::optional<int>& value, const char* flag) {
  if (value && *value < least) {
    throw std::invalid_argument(std::string(flag) + " must be " + std::to_string(least) +
                                " or more");
  }
}

}  // namespace

std::int64_t parse_size(const std::string& text) {
  std::size_t digits = 0;
  std::int64_t value = 0;
  try {
    value = std::stoll(text, &digits);
  } catch (const std::exception&) {
    digits = 0;
  }
  const std::string unit = digits == 0 ? "?" : text.substr(digits);
  static const std::map<std::string, int> kShifts = {{"", 0}, {"K", 10}, {"M", 20}, {"G", 30}};
  const auto shift = kShifts.find(unit);
  if (shift == kShifts.end() || value < 0 || value > (std::int64_t{1} << 32)) {
    throw std::invalid_argument("'" + text + "' is no size; write bytes, or 64K, 64M, 1G");
  }
  return value << shift->second;
}

Settings parse(int count, char** arguments, const std::string& description,
               const Defaults& defaults) {
  cxxopts::Options options(arguments[0], description + ". Ranks are started by --launch N, by\n" +
                                             "torchrun --no-python, or by mpirun.\n");
  // clang-format off
  options.add_options()
      ("m,message-size", "message sizes in bytes, doubling; K, M and G are understood",
       cxxopts::value<std::string>(), "[MIN:]MAX")
      ("i,iterations", "timed calls a size", cxxopts::value<int>(), "N")
      ("x,warmup", "untimed calls before them", cxxopts::value<int>(), "N")
      ("c,validation", "check the results; exit status 1 if one is wrong")
      ("f,full", "minimum, maximum and number of calls, too")
      ("d,accelerator", "where buffers are: cpu", cxxopts::value<std::string>(), "DEVICE")
      ("T,type", "float32, bfloat16, float64, int8, int32 or int64",
       cxxopts::value<std::string>(), "TYPE")
      ("transport", "auto, tcp, shm, or mpi under mpirun",
       cxxopts::value<std::string>()->default_value("auto"), "NAME")
      ("exact", "quantize nothing")
      ("launch", "start N ranks on this host", cxxopts::value<int>(), "N")
      ("h,help", "this text");
  // clang-format on
  const cxxopts::ParseResult known = options.parse(count, arguments);
  if (known.count("help") != 0) {
    std::cout << options.help();
    std::exit(0);
  }
  if (!known.unmatched().empty()) {
    throw std::invalid_argument("'" + known.unmatched().front() + "' belongs to no flag; see -h");
  }
  Settings settings;
  settings.least_size = defaults.least_size;
  settings.most_size = defaults.most_size;
  if (known.count("message-size") != 0) {
    read_sizes(known["message-size"].as<std::string>(), settings);
  }
  if (known.count("iterations") != 0) settings.iterations = known["iterations"].as<int>();
  if (known.count("warmup") != 0) settings.warmup = known["warmup"].as<int>();
  require_at_least(1, settings.iterations, "-i");
  require_at_least(0, settings.warmup, "-x");
  settings.validate = known.count("validation") != 0;
  settings.full = known.count("full") != 0;
  settings.exact = known.count("exact") != 0;
  settings.transport = known["transport"].as<std::string>();
  if (known.count("accelerator") != 0 && known["accelerator"].as<std::string>() != "cpu") {
    throw std::invalid_argument("-d " + known["accelerator"].as<std::string>() +
                                ": these programs are built for host memory alone; the Python "
                                "programs of the same names measure device memory with -d cuda");
  }
  settings.type = defaults.type;
  if (known.count("type") != 0) settings.type = read_type(known["type"].as<std::string>());
  if (known.count("launch") != 0) {
    settings.launch = known["launch"].as<int>();
    require_at_least(1, settings.launch, "--launch");
  }
  return settings;
}

std::vector<std::int64_t> sizes(const Settings& settings) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = settings.least_size; size <= settings.most_size; size *= 2) {
    sizes.push_back(size);
  }
  return sizes;
}

Calls calls(const Settings& settings, const Defaults& defaults, std::int64_t size) {
  const bool is_large = size > kLargeSize;
  return {settings.iterations.value_or(is_large ? defaults.large_iterations : defaults.iterations),
          settings.warmup.value_or(is_large ? defaults.large_warmup : defaults.warmup)};
}

}  // namespace agoq::bench::osu
