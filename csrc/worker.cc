#include "worker.h"

#include <pthread.h>

#include <utility>

namespace agoq {

/// Shared with the thread, which outlives the worker when the last task drops the backend.
struct Worker::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  bool running = false;
  bool stopped = false;

  bool idle() const { return tasks.empty() && !running; }
};

Worker::Worker() : state_(std::make_shared<State>()), thread_([state = state_] { run(state); }) {}

Worker::~Worker() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopped = true;
  }
  state_->changed.notify_all();
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
  state_->changed.notify_all();
}

bool Worker::drain(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, limit, [this] { return state_->idle(); });
}

void Worker::run(const std::shared_ptr<State>& state) {
  pthread_setname_np(pthread_self(), "agoq_worker");
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return state->stopped || !state->tasks.empty(); });
    if (state->tasks.empty()) return;
    auto task = std::move(state->tasks.front());
    state->tasks.pop_front();
    state->running = true;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    state->running = false;
    if (state->tasks.empty()) state->changed.notify_all();
  }
}

}  // namespace agoq
