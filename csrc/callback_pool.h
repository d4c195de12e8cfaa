// Threads that complete futures, and so run what users chained to them with then().
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace agoq {

/// A user's callback may wait for a later collective (PowerSGD's does), so it must hold up neither
/// the worker nor another callback: a thread is added whenever none is idle. Thread-safe.
class CallbackPool {
 public:
  CallbackPool();
  /// Runs what was submitted, then ends the threads.
  ~CallbackPool();
  CallbackPool(const CallbackPool&) = delete;
  CallbackPool& operator=(const CallbackPool&) = delete;

  void submit(std::function<void()> callback);

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
};

}  // namespace agoq
