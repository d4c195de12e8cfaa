#include "worker.h"

#include <pthread.h>

#include <utility>

namespace agoq {

/// Shared with the thread, which outlives the worker when the last task drops the backend.
struct Worker::State {
  std::mutex mutex;
  std::condition_variable to_do;    // For the thread.
  std::condition_variable is_idle;  // For drain().
  std::deque<std::function<void()>> tasks;
  bool running = false;
  bool stopped = false;

  bool idle() const { return tasks.empty() && !running; }

  /// Ends a task that has run on any thread.
  void end_task() {
    running = false;
    if (!tasks.empty() || stopped) to_do.notify_one();
    if (tasks.empty()) is_idle.notify_all();
  }
};

Worker::Worker() : state_(std::make_shared<State>()), thread_([state = state_] { run(state); }) {}

Worker::~Worker() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopped = true;
  }
  state_->to_do.notify_one();
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void Worker::submit(std::function<void()> task) {
  {
    std::lock_guard lock(state_->mutex);
    state_->tasks.push_back(std::move(task));
  }
  state_->to_do.notify_one();
}

bool Worker::take_turn() {
  std::lock_guard lock(state_->mutex);
  if (!state_->idle()) return false;
  return state_->running = true;
}

void Worker::end_turn() {
  std::lock_guard lock(state_->mutex);
  state_->end_task();
}

bool Worker::drain(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  return state_->is_idle.wait_for(lock, limit, [this] { return state_->idle(); });
}

void Worker::run(const std::shared_ptr<State>& state) {
  pthread_setname_np(pthread_self(), "agoq_worker");
  std::unique_lock lock(state->mutex);
  while (true) {
    state->to_do.wait(lock,
                      [&] { return !state->running && (state->stopped || !state->tasks.empty()); });
    if (state->tasks.empty()) return;
    auto task = std::move(state->tasks.front());
    state->tasks.pop_front();
    state->running = true;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    state->end_task();
  }
}

}  // namespace agoq
