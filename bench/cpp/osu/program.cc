#include "osu/program.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "osu/ranks.h"
#include "osu/report.h"

namespace agoq::bench::osu {
namespace {

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

bool is_pair(Kind kind) { return kind == Kind::kLatency || kind == Kind::kBandwidth; }

/// Seconds of one call, the mean of this rank.
double time_each_call(Communicator& communicator, Workload& workload, Calls calls) {
  double seconds = 0;
  for (int call = -calls.untimed; call < calls.timed; ++call) {
    communicator.barrier();
    const double begin = now();
    workload.run();
    if (call >= 0) seconds += now() - begin;
  }
  return seconds / calls.timed;
}

/// The same without barriers, which two ranks that answer each other do not need.
double time_all_calls(Communicator& communicator, Workload& workload, Calls calls) {
  communicator.barrier();
  for (int call = 0; call < calls.untimed; ++call) workload.run();
  const double begin = now();
  for (int call = 0; call < calls.timed; ++call) workload.run();
  return (now() - begin) / calls.timed;
}

std::vector<double> gather(Communicator& communicator, double value) {
  std::vector<double> values(static_cast<std::size_t>(communicator.size()));
  std::vector<void*> out;
  for (double& each : values) out.push_back(&each);
  const std::vector<std::int64_t> counts(values.size(), 1);
  communicator.all_gather(&value, out, counts, DataType::kFloat64);
  return values;
}

bool is_right_everywhere(Communicator& communicator, Workload& workload, Operation operation) {
  const auto quantized_calls = [&] { return of(communicator.stats(), operation).quantized_calls; };
  const std::int64_t before = quantized_calls();
  workload.clear();
  workload.run();
  const bool right = workload.is_right(quantized_calls() != before);
  const std::vector<double> all = gather(communicator, right ? 1 : 0);
  return std::find(all.begin(), all.end(), 0.0) == all.end();
}

Row measure(const Program& program, const Settings& settings, Communicator& communicator,
            std::int64_t size) {
  const std::unique_ptr<Workload> workload = program.make_workload(communicator, settings, size);
  const Calls calls = osu::calls(settings, program.defaults, size);
  Row row{.size = size, .calls = calls.timed};
  if (settings.validate && program.kind != Kind::kUnsized) {
    row.right = is_right_everywhere(communicator, *workload, program.operation);
  }
  const double own = is_pair(program.kind) ? time_all_calls(communicator, *workload, calls)
                                           : time_each_call(communicator, *workload, calls);
  std::vector<double> all = gather(communicator, own);
  if (is_pair(program.kind)) all.resize(1);
  const double messages = program.kind == Kind::kLatency     ? 2
                          : program.kind == Kind::kBandwidth ? kWindow
                                                             : 1;
  const double to_us = 1e6 / messages;
  row.average_us =
      to_us * std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  row.minimum_us = to_us * *std::min_element(all.begin(), all.end());
  row.maximum_us = to_us * *std::max_element(all.begin(), all.end());
  return row;
}

int run_on_rank(const Program& program, const Settings& settings, Communicator& communicator) {
  if (is_pair(program.kind) && communicator.size() != 2) {
    throw std::runtime_error("this test takes 2 ranks, not " + std::to_string(communicator.size()));
  }
  Report report(program, settings, communicator.rank() == 0);
  const std::vector<std::int64_t> all_sizes =
      program.kind == Kind::kUnsized ? std::vector<std::int64_t>{0} : sizes(settings);
  bool all_right = true;
  for (const std::int64_t size : all_sizes) {
    const Row row = measure(program, settings, communicator, size);
    report.add(row);
    all_right = all_right && row.right.value_or(true);
  }
  communicator.barrier();
  return all_right ? 0 : 1;
}

}  // namespace

int run_program(const Program& program, int count, char** arguments) {
  try {
    const Settings settings = parse(count, arguments, program.description, program.defaults);
    return run_on_ranks(settings, [&](Communicator& communicator) {
      return run_on_rank(program, settings, communicator);
    });
  } catch (const std::exception& error) {
    std::cerr << arguments[0] << ": " << error.what() << std::endl;
    return 1;
  }
}

}  // namespace agoq::bench::osu
