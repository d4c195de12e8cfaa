// How fast the kernels are on a device, as a share of a copy's bandwidth measured in the same run.
// Prints a table; with a path as its argument also writes it there as JSON.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "agoqcomm/cuda_codec.h"
#include "agoqcomm/cuda_row_codec.h"

namespace {

using agoq::CudaCodec;
using agoq::DataType;

constexpr std::int64_t kElements = std::int64_t{1} << 28;  // several times what caches hold
constexpr int kRepetitions = 15;
constexpr int kRanks = 8;
constexpr std::int64_t kWidth = 4096;

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

/// Zeroed device memory.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::int64_t bytes) {
    check(cudaMalloc(&data_, static_cast<std::size_t>(bytes)));
    check(cudaMemset(data_, 0, static_cast<std::size_t>(bytes)));
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* data() const { return data_; }
  std::byte* bytes() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

/// Median of several runs, in seconds, after two to warm up.
double seconds(const std::function<void()>& start) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < kRepetitions + 2; ++i) {
    check(cudaEventRecord(begin));
    start();
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= 2) times.push_back(milliseconds);
  }
  check(cudaEventDestroy(begin));
  check(cudaEventDestroy(end));
  std::nth_element(times.begin(), times.begin() + kRepetitions / 2, times.end());
  return times[kRepetitions / 2] * 1e-3;
}

struct Figure {
  std::string kernel;
  double bytes;  ///< Read and written: each input once, each output once.
  double seconds;
};

/// Adds the figures of one format; `wide` and `other` hold kElements of fp32.
void measure_format(const char* format, const DeviceMemory& wide, const DeviceMemory& other,
                    std::vector<Figure>& figures) {
  const CudaCodec codec{agoq::BlockFormat{.element = agoq::parse_element_format(format)}};
  const auto encoded_bytes = agoq::WireLayout(codec.format(), kElements).total_bytes();
  const auto code = static_cast<double>(encoded_bytes);
  const auto n = static_cast<double>(kElements);
  const std::string of = std::string(format) + " ";
  const DeviceMemory encoded(encoded_bytes);
  for (const auto& [type, name] :
       {std::pair{DataType::kBfloat16, "bf16"}, std::pair{DataType::kFloat32, "fp32"}}) {
    const double value_bytes = n * static_cast<double>(agoq::size_of(type));
    figures.push_back({of + "encode " + name, value_bytes + code, seconds([&, type = type] {
                         codec.encode(wide.data(), type, kElements, encoded.bytes(), nullptr);
                       })});
    figures.push_back({of + "decode " + name, value_bytes + code, seconds([&, type = type] {
                         codec.decode(encoded.bytes(), kElements, other.data(), type, nullptr);
                       })});
  }
  figures.push_back({of + "decode_accumulate", 8 * n + code, seconds([&] {
                       codec.decode_accumulate(encoded.bytes(), kElements,
                                               static_cast<float*>(other.data()), nullptr);
                     })});
  // Each piece in memory of its own, as after an exchange.
  const DeviceMemory received(kRanks * encoded_bytes);
  std::vector<const std::byte*> pieces;
  for (int rank = 0; rank < kRanks; ++rank) {
    pieces.push_back(rank == 0 ? nullptr : received.bytes() + rank * encoded_bytes);
  }
  const agoq::Pieces sum{pieces, wide.data(), DataType::kBfloat16, 0};
  figures.push_back(
      {of + "sum of 8, bf16, encoded and decoded", 2 * n + 8 * code + 2 * n, seconds([&] {
         codec.sum_encode(sum, kElements, 0.125f, encoded.bytes(), other.data(),
                          DataType::kBfloat16, nullptr);
       })});
  figures.push_back({of + "sum of 8, to bf16", 2 * n + 7 * code + 2 * n, seconds([&] {
                       codec.sum_decode(sum, kElements, 0.125f, other.data(), DataType::kBfloat16,
                                        nullptr);
                     })});
  // What stands between two blocks of a transformer. A norm's second look at a row is in cache.
  const agoq::CudaRowCodec row_codec(codec.format());
  constexpr agoq::RowShape kShape{kElements / kWidth, kWidth};
  agoq::RowEpilogue epilogue;
  epilogue.residual = wide.bytes() + 2 * kElements;
  epilogue.norm = agoq::RmsNorm{};
  epilogue.normed = other.bytes() + 2 * kElements;
  epilogue.encoded = {encoded.bytes(), kShape.rows, 0};
  figures.push_back({of + "rows of 8, bf16, normed and encoded", 8 * n + 8 * code, seconds([&] {
                       row_codec.sum_decode(sum, kShape, 0.125f, other.data(), DataType::kBfloat16,
                                            nullptr, epilogue);
                     })});
}

std::vector<Figure> measure() {
  const DeviceMemory wide(4 * kElements), other(4 * kElements);
  const auto copy = [&] {
    check(cudaMemcpyAsync(other.data(), wide.data(), 4 * kElements, cudaMemcpyDeviceToDevice));
  };
  std::vector<Figure> figures = {{"copy", 8.0 * kElements, seconds(copy)}};
  for (const char* format : {"int8", "fp4", "e2m3", "int4", "int6"}) {
    measure_format(format, wide, other, figures);
  }
  return figures;
}

void print(const std::vector<Figure>& figures) {
  const double copy = figures.front().bytes / figures.front().seconds;
  for (const Figure& figure : figures) {
    const double rate = figure.bytes / figure.seconds;
    std::printf("%-41s %12.0f bytes %9.3f ms %8.1f GB/s %6.1f %% of copy\n", figure.kernel.c_str(),
                figure.bytes, figure.seconds * 1e3, rate * 1e-9, 100 * rate / copy);
  }
}

void write_json(const std::vector<Figure>& figures, const char* path) {
  cudaDeviceProp device;
  check(cudaGetDeviceProperties(&device, 0));
  const double copy = figures.front().bytes / figures.front().seconds;
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) throw std::runtime_error(std::string("cannot write ") + path);
  std::fprintf(file, "{\"device\": \"%s\", \"elements\": %lld, \"rows\": [", device.name,
               static_cast<long long>(kElements));
  const char* separator = "\n";
  for (const Figure& figure : figures) {
    std::fprintf(file,
                 "%s {\"kernel\": \"%s\", \"bytes\": %.0f, \"seconds\": %.9f, \"of_copy\": %.4f}",
                 separator, figure.kernel.c_str(), figure.bytes, figure.seconds,
                 figure.bytes / figure.seconds / copy);
    separator = ",\n";
  }
  std::fprintf(file, "\n]}\n");
  std::fclose(file);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<Figure> figures = measure();
    print(figures);
    if (argc > 1) write_json(figures, argv[1]);
  } catch (const std::exception& error) {
    std::printf("kernel_roofline: %s\n", error.what());
    return 1;
  }
  return 0;
}
