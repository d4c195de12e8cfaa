// Codec throughput on one core, beside a plain loop that moves the same bytes.
//
//   codec_bench [--out FILE] [--repetitions N] [--block N]
//
// Every row alternates the kernel and its plain loop and takes the median of the per-repetition
// ratios, so that a busy or throttled machine hits both. Time is the thread's own CPU time. The
// result is JSON: ratio 1.0 means as fast as the plain loop.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "agoqcomm/codec.h"
#include "agoqcomm/version.h"
#include "plain_loops.h"

namespace agoq::bench {
namespace {

struct Settings {
  std::string out;
  int repetitions = 15;
  int block = 128;
};

double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// 64-byte aligned memory whose pages are all present.
class Buffer {
 public:
  explicit Buffer(std::int64_t bytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(64, round_up(bytes)))) {
    if (data_ == nullptr) throw std::bad_alloc();
    std::memset(data_, 1, round_up(bytes));
  }
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return data_; }

 private:
  static std::size_t round_up(std::int64_t bytes) {
    return (static_cast<std::size_t>(bytes) + 4095) / 4096 * 4096;
  }
  std::byte* data_;
};

struct Row {
  std::string operation;
  std::string isa;
  std::string type;
  std::int64_t elements;
  double seconds;
  double plain_seconds;
  double ratio;
};

class CodecBench {
 public:
  explicit CodecBench(const Settings& settings) : settings_(settings) {}

  void run(std::int64_t elements) {
    const Buffer values(4 * elements);
    const Buffer own(4 * elements);
    const Buffer piece(2 * elements);
    const Buffer result(2 * elements);
    baselines(elements, values, own);
    for (const CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
      if (!is_supported(isa)) continue;
      const Codec codec({.block = settings_.block}, isa);
      for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16}) {
        fill(values, elements);
        codec.encode(values.data(), DataType::kFloat32, elements, piece.data());
        codec.decode(piece.data(), elements, values.data(), type);
        measure(codec, type, elements, values, own, piece, result);
      }
    }
  }

  std::string json() const {
    std::ostringstream out;
    out << "{\n  \"program\": \"codec_bench\",\n  \"version\": \"" << version()
        << "\",\n  \"format\": \"" << BlockFormat{.block = settings_.block}.name()
        << "\",\n  \"repetitions\": " << settings_.repetitions << ",\n  \"rows\": [";
    const char* separator = "\n";
    for (const Row& row : rows_) {
      char line[400];
      std::snprintf(line, sizeof(line),
                    "    {\"operation\": \"%s\", \"isa\": \"%s\", \"type\": \"%s\", "
                    "\"elements\": %lld, \"seconds\": %.4g, \"plain_seconds\": %.4g, "
                    "\"elements_per_second\": %.4g, \"ratio\": %.3f}",
                    row.operation.c_str(), row.isa.c_str(), row.type.c_str(),
                    static_cast<long long>(row.elements), row.seconds, row.plain_seconds,
                    static_cast<double>(row.elements) / row.seconds, row.ratio);
      out << separator << line;
      separator = ",\n";
    }
    out << "\n  ]\n}\n";
    return out.str();
  }

 private:
  using Work = std::function<void()>;

  static void fill(const Buffer& values, std::int64_t elements) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> some(4096);
    for (float& x : some) x = normal(random);
    for (std::int64_t i = 0; i < elements; i += 4096) {
      const auto n = static_cast<std::size_t>(std::min<std::int64_t>(4096, elements - i));
      std::memcpy(values.data() + 4 * i, some.data(), 4 * n);
    }
  }

  void add(const std::string& operation, const std::string& isa, const std::string& type,
           std::int64_t elements, const Work& work, const Work& plain) {
    // Short work is repeated to a few milliseconds, so that the clock's grain does not show.
    const int inner = static_cast<int>(std::max<std::int64_t>(1, (4 << 20) / elements));
    std::vector<double> seconds, plain_seconds, ratios;
    for (int repetition = -1; repetition < settings_.repetitions; ++repetition) {
      const double start = thread_seconds();
      for (int i = 0; i < inner; ++i) work();
      const double between = thread_seconds();
      for (int i = 0; i < inner; ++i) plain();
      const double end = thread_seconds();
      if (repetition < 0) continue;  // warms up caches and page tables
      seconds.push_back((between - start) / inner);
      plain_seconds.push_back((end - between) / inner);
      ratios.push_back((end - between) / (between - start));
    }
    rows_.push_back(
        {operation, isa, type, elements, median(seconds), median(plain_seconds), median(ratios)});
  }

  void baselines(std::int64_t elements, const Buffer& from, const Buffer& to) {
    const auto steps = static_cast<std::size_t>(elements / 64);
    const Work copy = [&] {
      move_lines({.read = 4, .write = 4}, steps, from.data(), to.data(), nullptr);
    };
    add(
        "read", "plain", "float32", elements,
        [&] { move_lines({.read = 4}, steps, from.data(), nullptr, nullptr); }, copy);
    add(
        "write", "plain", "float32", elements,
        [&] { move_lines({.write = 4}, steps, nullptr, to.data(), nullptr); }, copy);
    add(
        "memcpy", "libc", "float32", elements,
        [&] { std::memcpy(to.data(), from.data(), static_cast<std::size_t>(4 * elements)); }, copy);
  }

  void measure(const Codec& codec, DataType type, std::int64_t elements, const Buffer& values,
               const Buffer& own, const Buffer& piece, const Buffer& result) {
    const std::string isa(to_string(codec.isa()));
    const std::string name(to_string(type));
    // Lines of values to one line of codes.
    const int wide = static_cast<int>(size_of(type));
    const auto steps = static_cast<std::size_t>(elements / 64);

    add(
        "encode", isa, name, elements,
        [&] { codec.encode(values.data(), type, elements, result.data()); },
        [&] { move_lines({wide, 1, 0}, steps, values.data(), result.data(), nullptr); });
    add(
        "decode", isa, name, elements,
        [&] { codec.decode(piece.data(), elements, own.data(), type); },
        [&] { move_lines({1, wide, 0}, steps, piece.data(), own.data(), nullptr); });

    // The owner's piece is replaced by what the others will decode. Halved, it stays in range.
    const std::byte* const pieces[] = {nullptr, piece.data()};
    const Pieces one{pieces, own.data(), type, 0};
    add(
        "sum_encode, in place, 1 piece", isa, name, elements,
        [&] { codec.sum_encode(one, elements, 0.5f, result.data(), own.data(), type); },
        [&] { move_lines({1, 1, wide}, steps, piece.data(), result.data(), own.data()); });
    if (type == DataType::kFloat32) {
      auto* accumulator = reinterpret_cast<float*>(own.data());
      std::memset(own.data(), 0, static_cast<std::size_t>(4 * elements));
      add(
          "decode_accumulate", isa, name, elements,
          [&] { codec.decode_accumulate(piece.data(), elements, accumulator); },
          [&] { move_lines({1, 0, 4}, steps, result.data(), nullptr, own.data()); });
    }
  }

  Settings settings_;
  std::vector<Row> rows_;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::invalid_argument(name + " needs a value");
    const std::string value = argv[++i];
    if (name == "--out") {
      settings.out = value;
    } else if (name == "--repetitions") {
      settings.repetitions = std::stoi(value);
    } else if (name == "--block") {
      settings.block = std::stoi(value);
    } else {
      throw std::invalid_argument("there is no option " + name);
    }
  }
  return settings;
}

int run(int argc, char** argv) {
  const Settings settings = parse(argc, argv);
  CodecBench bench(settings);
  // 512 KiB of fp32, which with its codes fits a usual L2, and 64 MiB, which fits no cache share.
  for (const std::int64_t elements : {std::int64_t{128} << 10, std::int64_t{16} << 20}) {
    bench.run(elements);
  }
  if (settings.out.empty()) {
    std::cout << bench.json();
  } else {
    std::ofstream(settings.out) << bench.json();
  }
  return 0;
}

}  // namespace
}  // namespace agoq::bench

int main(int argc, char** argv) {
  try {
    return agoq::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "codec_bench: " << error.what() << "\n";
    return 2;
  }
}
