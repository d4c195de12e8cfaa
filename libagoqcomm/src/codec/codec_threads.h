// Threads that share the work of one codec call with its caller.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace agoq {

/// Thread-safe. Callers that meet take turns by doing their work alone: none waits for another.
///
/// Parts are claimed one by one, by the caller too, so that a helper that wakes late or is kept
/// from its core delays nobody: the caller does its parts instead. Helpers are started by
/// the first run(), look for more work for some microseconds after each, and then sleep. Where that
/// was before a fork, the child has none and does everything itself.
class CodecThreads {
 public:
  /// `threads` of 2 or more work together, the caller of run() among them.
  explicit CodecThreads(int threads);
  ~CodecThreads();
  CodecThreads(const CodecThreads&) = delete;
  CodecThreads& operator=(const CodecThreads&) = delete;

  int threads() const { return threads_; }

  /// Calls work(part) once for each part from 0 to `parts` - 1, fewer than 2^16, on any of the
  /// threads, and returns when all have ended. `work` must not throw.
  void run(int parts, const std::function<void(int)>& work);

 private:
  /// Claims and does one; false where none is left.
  bool do_one_part();
  /// Starts them the first time; false in a child that was forked after that.
  bool has_helpers();
  void start();
  /// What a helper does until the end.
  void help();

  const int threads_;
  std::mutex running_;  ///< Held by the caller whose work is shared.
  std::vector<std::thread> helpers_;
  pid_t pid_ = 0;  ///< The process that has the helpers.

  /// Written while no part can be claimed.
  const std::function<void(int)>* work_ = nullptr;
  /// Parts of the current run and how many of them are claimed, in one word with the run's number,
  /// so that a claim is always of the run that it was read for.
  std::atomic<std::uint64_t> claims_{0};
  std::atomic<int> unfinished_{0};
  std::atomic<std::uint32_t> runs_{0};  ///< What sleeping helpers wait on.
  std::atomic<bool> ending_{false};
};

}  // namespace agoq
