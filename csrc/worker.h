// The thread that runs a group's collectives one after another, in the order they were called.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace agoq {

/// Thread-safe. Tasks must not throw.
class Worker {
 public:
  Worker();
  /// Runs what is queued, then ends the thread.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void submit(std::function<void()> task);
  /// Runs the task on the caller's thread in the queue's place, if nothing is queued or running;
  /// else returns false. It spares two hand-offs between threads, most of a small call's time.
  template <typename Task>
  bool run_here(const Task& task) {
    if (!take_turn()) return false;
    task();
    end_turn();
    return true;
  }
  /// Waits until nothing is queued or running; false if that took longer than `limit`.
  bool drain(std::chrono::milliseconds limit);

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);
  bool take_turn();
  void end_turn();

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace agoq
