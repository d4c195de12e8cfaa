// The course of an OSU-style program: what it measures, size by size, and OMB's columns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "agoqcomm/communicator.h"
#include "osu/settings.h"

namespace agoq::bench::osu {

/// One call on buffers of one size; all ranks make the same ones.
class Workload {
 public:
  virtual ~Workload() = default;

  virtual void run() = 0;
  /// Clears what a call is to write, so that what an earlier one left does not count as right.
  virtual void clear() {}
  /// Whether the last call gave what it should; `quantized` says how it travelled.
  virtual bool is_right(bool /*quantized*/) const { return true; }
};

/// Makes the workload of a message size in bytes.
using MakeWorkload =
    std::function<std::unique_ptr<Workload>(Communicator&, const Settings&, std::int64_t size)>;

/// MakeWorkload of a class that is constructed from the same.
template <typename T>
std::unique_ptr<Workload> make(Communicator& communicator, const Settings& settings,
                               std::int64_t size) {
  return std::make_unique<T>(communicator, settings, size);
}

enum class Kind {
  kCollective,  ///< Each call timed on each rank, after a barrier.
  kUnsized,     ///< The same, without messages.
  kLatency,     ///< Two ranks; half a run's time, of rank 0, calls one after another.
  kBandwidth,   ///< Two ranks; megabytes a second of a window of messages.
};

struct Program {
  std::string title;        ///< As OMB's header names it.
  std::string description;  ///< For -h.
  Kind kind = Kind::kCollective;
  Operation operation{};  ///< Whose counters say whether a call was quantized.
  Defaults defaults;
  MakeWorkload make_workload;
};

/// Messages that osu_bw has on their way before it waits for an answer: OMB's number.
inline constexpr int kWindow = 64;

/// main() of a program: its exit status is 1 after an error or a failed validation.
int run_program(const Program& program, int count, char** arguments);

/// Elements of a message, one at least.
inline std::int64_t elements_of(std::int64_t size, DataType type) {
  const auto item = static_cast<std::int64_t>(size_of(type));
  return size < item ? 1 : size / item;
}

}  // namespace agoq::bench::osu
