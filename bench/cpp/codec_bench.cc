// Codec throughput on one core, beside plain loops.
//
//   codec_bench [--out FILE] [--repetitions N] [--format NAME] [--block N]
//
// Every row alternates the kernel and two plain loops and takes the medians of the per-repetition
// ratios, so that a busy or throttled machine hits all three. Time is the thread's own CPU time.
// The result is JSON. "ratio" is to a loop that moves the same bytes, codes and numbers; 1.0 means
// as fast. "bound_ratio" is to a simpler loop over the numbers alone, which "bound" names: "read"
// reads them and does nothing else; "copy in place" reads each and writes it back; "write" writes
// them. Both loops leave fetching ahead to the hardware.
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
#include "agoqcomm/options.h"
#include "agoqcomm/version.h"
#include "agoqcomm/wire_layout.h"
#include "plain_loops.h"

namespace agoq::bench {
namespace {

struct Settings {
  std::string out;
  int repetitions = 15;
  BlockFormat format;
};

/// Elements of a segment of the collectives.
const std::int64_t kSegment = Options().segment_numel;

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

/// Whole lines of codes beside whole lines of the elements' values.
struct LinesOfElements {
  int codes;
  int values;
  std::int64_t elements;
};

LinesOfElements lines_of(const BlockFormat& format, DataType type) {
  const auto size = static_cast<int>(size_of(type));
  const std::int64_t bits = WireLayout(format, format.block).code_bytes() * 8 / format.block;
  if (bits == 8) return {1, size, 64};
  if (bits == 4) return {1, 2 * size, 128};
  return {3, 4 * size, 256};
}

struct Row {
  std::string operation;
  std::string isa;
  std::string type;
  std::int64_t elements;
  double seconds;
  double plain_seconds;
  double ratio;
  std::string bound;
  double bound_seconds;
  double bound_ratio;
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
      const Codec codec(settings_.format, isa);
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
        << "\",\n  \"format\": \"" << settings_.format.name()
        << "\",\n  \"repetitions\": " << settings_.repetitions << ",\n  \"rows\": [";
    const char* separator = "\n";
    for (const Row& row : rows_) {
      char line[500];
      std::snprintf(line, sizeof(line),
                    "    {\"operation\": \"%s\", \"isa\": \"%s\", \"type\": \"%s\", "
                    "\"elements\": %lld, \"seconds\": %.4g, \"plain_seconds\": %.4g, "
                    "\"elements_per_second\": %.4g, \"ratio\": %.3f, \"bound\": \"%s\", "
                    "\"bound_seconds\": %.4g, \"bound_ratio\": %.3f}",
                    row.operation.c_str(), row.isa.c_str(), row.type.c_str(),
                    static_cast<long long>(row.elements), row.seconds, row.plain_seconds,
                    static_cast<double>(row.elements) / row.seconds, row.ratio, row.bound.c_str(),
                    row.bound_seconds, row.bound_ratio);
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

  /// A plain loop by name.
  struct Plain {
    std::string name;
    Work work;
  };

  void add(const std::string& operation, const std::string& isa, const std::string& type,
           std::int64_t elements, const Work& work, const Work& plain, const Plain& bound) {
    // Short work is repeated to a few milliseconds, so that the clock's grain does not show.
    const int inner = static_cast<int>(std::max<std::int64_t>(1, (4 << 20) / elements));
    const auto timed = [inner](const Work& some) {
      const double start = thread_seconds();
      for (int i = 0; i < inner; ++i) some();
      return (thread_seconds() - start) / inner;
    };
    std::vector<double> seconds, plain_seconds, ratios, bound_seconds, bound_ratios;
    for (int repetition = -1; repetition < settings_.repetitions; ++repetition) {
      const double kernel = timed(work);
      const double loop = timed(plain);
      const double least = timed(bound.work);
      if (repetition < 0) continue;  // warms up caches and page tables
      seconds.push_back(kernel);
      plain_seconds.push_back(loop);
      ratios.push_back(loop / kernel);
      bound_seconds.push_back(least);
      bound_ratios.push_back(least / kernel);
    }
    rows_.push_back({operation, isa, type, elements, median(seconds), median(plain_seconds),
                     median(ratios), bound.name, median(bound_seconds), median(bound_ratios)});
  }

  static Plain read(int wide, std::size_t steps, const Buffer& from) {
    return {"read",
            [=, &from] { move_lines({.read = wide}, steps, from.data(), nullptr, nullptr); }};
  }
  static Plain write(int wide, std::size_t steps, const Buffer& to) {
    return {"write", [=, &to] { move_lines({.write = wide}, steps, nullptr, to.data(), nullptr); }};
  }
  static Plain copy_in_place(int wide, std::size_t steps, const Buffer& values) {
    return {"copy in place",
            [=, &values] { move_lines({.update = wide}, steps, nullptr, nullptr, values.data()); }};
  }

  void baselines(std::int64_t elements, const Buffer& from, const Buffer& to) {
    const auto steps = static_cast<std::size_t>(elements / 64);
    const Work copy = [&] {
      move_lines({.read = 4, .write = 4}, steps, from.data(), to.data(), nullptr);
    };
    add(
        "memcpy", "libc", "float32", elements,
        [&] { std::memcpy(to.data(), from.data(), static_cast<std::size_t>(4 * elements)); }, copy,
        read(4, steps, from));
  }

  void measure(const Codec& codec, DataType type, std::int64_t elements, const Buffer& values,
               const Buffer& own, const Buffer& piece, const Buffer& result) {
    const std::string isa(to_string(codec.isa()));
    const std::string name(to_string(type));
    const int wide = static_cast<int>(size_of(type));
    const auto steps = static_cast<std::size_t>(elements / 64);
    const LinesOfElements lines = lines_of(codec.format(), type);
    const auto groups = static_cast<std::size_t>(elements / lines.elements);

    add(
        "encode", isa, name, elements,
        [&] { codec.encode(values.data(), type, elements, result.data()); },
        [&] {
          move_lines({lines.values, lines.codes, 0}, groups, values.data(), result.data(), nullptr);
        },
        read(wide, steps, values));
    add(
        "decode", isa, name, elements,
        [&] { codec.decode(piece.data(), elements, own.data(), type); },
        [&] {
          move_lines({lines.codes, lines.values, 0}, groups, piece.data(), own.data(), nullptr);
        },
        write(wide, steps, own));

    // The owner's piece is replaced by what the others will decode.
    const std::byte* const pieces[] = {nullptr, piece.data()};
    const auto sum_encode = [&](std::byte* numbers, std::int64_t count) {
      const Pieces one{pieces, numbers, type, 0};
      codec.sum_encode(one, count, 1.0f, result.data(), numbers, type);
    };
    const auto sum_decode = [&](std::byte* numbers, std::int64_t count) {
      const Pieces one{pieces, numbers, type, 0};
      codec.sum_decode(one, count, 1.0f, numbers, type);
    };
    add(
        "sum_encode, in place", isa, name, elements, [&] { sum_encode(own.data(), elements); },
        [&] {
          move_lines({lines.codes, lines.codes, lines.values}, groups, piece.data(), result.data(),
                     own.data());
        },
        copy_in_place(wide, steps, own));
    add(
        "sum_decode, in place", isa, name, elements, [&] { sum_decode(own.data(), elements); },
        [&] {
          move_lines({lines.codes, 0, lines.values}, groups, piece.data(), nullptr, own.data());
        },
        copy_in_place(wide, steps, own));
    if (elements > kSegment) {
      by_segment(codec, type, elements, values, own, piece, result, sum_encode, sum_decode);
    }
    if (type == DataType::kFloat32) {
      auto* accumulator = reinterpret_cast<float*>(own.data());
      std::memset(own.data(), 0, static_cast<std::size_t>(4 * elements));
      add(
          "decode_accumulate", isa, name, elements,
          [&] { codec.decode_accumulate(piece.data(), elements, accumulator); },
          [&] {
            move_lines({lines.codes, 0, lines.values}, groups, piece.data(), nullptr, own.data());
          },
          copy_in_place(wide, steps, own));
    }
  }

  /// As in a collective: messages lie in cache, and only the numbers come from memory.
  template <typename SumEncode, typename SumDecode>
  void by_segment(const Codec& codec, DataType type, std::int64_t elements, const Buffer& values,
                  const Buffer& own, const Buffer& piece, const Buffer& result,
                  const SumEncode& sum_encode, const SumDecode& sum_decode) {
    const std::string isa(to_string(codec.isa()));
    const std::string name(to_string(type));
    const int wide = static_cast<int>(size_of(type));
    const auto steps = static_cast<std::size_t>(elements / 64);
    const auto each = [=](const Buffer& numbers, const auto& work) {
      return [=, &numbers] {
        for (std::int64_t i = 0; i < elements; i += kSegment) {
          work(numbers.data() + i * wide, std::min(kSegment, elements - i));
        }
      };
    };
    const LinesOfElements lines = lines_of(codec.format(), type);
    const auto groups = [=](std::int64_t count) {
      return static_cast<std::size_t>(count / lines.elements);
    };
    add("encode, by segment", isa, name, elements,
        each(values,
             [&](std::byte* numbers, std::int64_t count) {
               codec.encode(numbers, type, count, result.data());
             }),
        each(values,
             [&](std::byte* numbers, std::int64_t count) {
               move_lines({lines.values, lines.codes, 0}, groups(count), numbers, result.data(),
                          nullptr);
             }),
        read(wide, steps, values));
    add("sum_encode, in place, by segment", isa, name, elements, each(own, sum_encode),
        each(own,
             [&](std::byte* numbers, std::int64_t count) {
               move_lines({lines.codes, lines.codes, lines.values}, groups(count), piece.data(),
                          result.data(), numbers);
             }),
        copy_in_place(wide, steps, own));
    add("sum_decode, in place, by segment", isa, name, elements, each(own, sum_decode),
        each(own,
             [&](std::byte* numbers, std::int64_t count) {
               move_lines({lines.codes, 0, lines.values}, groups(count), piece.data(), nullptr,
                          numbers);
             }),
        copy_in_place(wide, steps, own));
    add("decode, by segment, past the caches", isa, name, elements,
        each(own,
             [&](std::byte* numbers, std::int64_t count) {
               codec.decode(piece.data(), count, numbers, type, CacheUse::kStreamed);
             }),
        each(own,
             [&](std::byte* numbers, std::int64_t count) {
               move_lines({lines.codes, lines.values, 0}, groups(count), piece.data(), numbers,
                          nullptr);
             }),
        write(wide, steps, own));
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
    } else if (name == "--format") {
      settings.format.element = parse_element_format(value);
    } else if (name == "--block") {
      settings.format.block = std::stoi(value);
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
