// Reduces over ranks that are threads and checks the result: the smallest user of the library.
#include <agoqcomm/communicator.h>
#include <agoqcomm/error.h>
#include <agoqcomm/inproc.h>
#include <agoqcomm/version.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int kRanks = 4;
constexpr std::int64_t kCount = 300007;

float input(int rank, std::int64_t i) {
  return std::sin(0.001f * static_cast<float>(i) + static_cast<float>(rank));
}

// Half a step for each of the kRanks - 1 encoded pieces, and for the encoded sum. A step is a
// block's largest magnitude over 127, rounded up to bf16 (by 2^-7 at most); inputs are at most 1,
// and a sum of them kRanks.
double error_bound() {
  const double step = (1.0 + 0x1p-7) / 127;
  return 0.5 * step * (kRanks - 1) + 0.5 * step * (kRanks + 0.5);
}

bool check(const std::vector<std::vector<float>>& results, const agoq::Stats& stats) {
  bool good = true;
  double worst = 0;
  for (std::int64_t i = 0; i < kCount; ++i) {
    double sum = 0;
    for (int rank = 0; rank < kRanks; ++rank) sum += input(rank, i);
    worst = std::max(worst, std::abs(results[0][i] - sum));
  }
  std::cout << "largest error " << worst << ", bound " << error_bound() << '\n';
  // Not zero either: an exact result would mean that nothing was quantized.
  good = good && worst <= error_bound() && worst > 0;
  for (const std::vector<float>& result : results) good = good && result == results[0];
  const agoq::OperationStats& counters = agoq::of(stats, agoq::Operation::kAllReduce);
  std::cout << "sent " << counters.wire_bytes << " bytes instead of " << counters.exact_bytes
            << '\n';
  return good && counters.quantized_calls == 1 && counters.wire_bytes * 3 < counters.exact_bytes;
}

}  // namespace

int main() {
  if (std::string(agoq::version()) != AGOQCOMM_VERSION_STRING) {
    std::cout << "the headers are of " << AGOQCOMM_VERSION_STRING << ", the library of "
              << agoq::version() << '\n';
    return 1;
  }
  std::vector<std::unique_ptr<agoq::Transport>> transports = agoq::make_inproc_group(kRanks);
  std::vector<std::vector<float>> results(kRanks, std::vector<float>(kCount));
  std::vector<std::string> errors(kRanks);
  agoq::Stats stats;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        agoq::Communicator communicator(std::move(transports[rank]), agoq::Options());
        std::vector<float>& values = results[rank];
        for (std::int64_t i = 0; i < kCount; ++i) values[i] = input(rank, i);
        communicator.all_reduce(values.data(), values.data(), kCount, agoq::DataType::kFloat32,
                                agoq::ReduceOp::kSum);
        if (rank == 0) {
          stats = communicator.stats();
          std::cout << communicator.describe();
        }
      } catch (const agoq::Error& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) {
    if (!error.empty()) {
      std::cout << error << '\n';
      return 1;
    }
  }
  return check(results, stats) ? 0 : 1;
}
