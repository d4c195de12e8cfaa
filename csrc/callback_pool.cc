#include "callback_pool.h"

#include <utility>

namespace agoq {

/// Shared with the threads, so that one which drops the last reference to the pool can outlive it.
struct CallbackPool::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> callbacks;
  std::size_t idle = 0;
  bool stopped = false;
};

CallbackPool::CallbackPool() : state_(std::make_shared<State>()) {}

CallbackPool::~CallbackPool() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopped = true;
  }
  state_->changed.notify_all();
  for (auto& thread : threads_) {
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

void CallbackPool::submit(std::function<void()> callback) {
  std::lock_guard lock(state_->mutex);
  state_->callbacks.push_back(std::move(callback));
  if (state_->idle < state_->callbacks.size()) {
    threads_.emplace_back([state = state_] { run(state); });
  }
  state_->changed.notify_one();
}

void CallbackPool::run(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    ++state->idle;
    state->changed.wait(lock, [&] { return state->stopped || !state->callbacks.empty(); });
    --state->idle;
    if (state->callbacks.empty()) return;
    auto callback = std::move(state->callbacks.front());
    state->callbacks.pop_front();
    lock.unlock();
    callback();
    callback = nullptr;
    lock.lock();
  }
}

}  // namespace agoq
