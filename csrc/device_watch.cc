#include "device_watch.h"

#include <pthread.h>

#include <utility>

#include "agoqcomm/error.h"
#include "errors.h"

namespace agoq {
namespace {

constexpr std::chrono::milliseconds kInterval{100};

/// Whether `a` is `b` or before it, for numbers that wrap around.
bool not_after(DeviceWatch::Number a, DeviceWatch::Number b) {
  return static_cast<std::int32_t>(b - a) >= 0;
}

std::exception_ptr group_ended() {
  try {
    throw_backend_error("agoq: the group ended while the call was under way.");
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

DeviceWatch::DeviceWatch(DeviceRuntime& runtime, FindError find_error, Fail fail)
    : runtime_(runtime),
      find_error_(std::move(find_error)),
      fail_(std::move(fail)),
      word_(static_cast<std::uint32_t*>(runtime.allocate_pinned(sizeof(std::uint32_t)))) {
  *word_ = 0;
  thread_ = std::thread([this] { run(); });
}

DeviceWatch::~DeviceWatch() {
  stop();
  // Else the stream may still write to it.
  if (is_done(last_)) runtime_.free_pinned(word_);
}

void DeviceWatch::stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  examine();
  {
    std::lock_guard lock(asking_);
    may_ask_ = false;
  }
  call_back();
}

DeviceWatch::Number DeviceWatch::end_call(void* stream, std::string what,
                                          std::chrono::milliseconds timeout) {
  std::lock_guard lock(mutex_);
  runtime_.write_value(word_, last_ + 1, stream);
  entries_.push_back({++last_, std::move(what), timeout, Clock::now() + timeout});
  changed_.notify_one();
  return last_;
}

bool DeviceWatch::is_done(Number number) const {
  return not_after(number, std::atomic_ref(*word_).load(std::memory_order_acquire));
}

std::exception_ptr DeviceWatch::error(Number number) {
  {
    std::lock_guard lock(mutex_);
    const bool is_good = entries_.empty() || !not_after(entries_.front().number, number);
    if (error_ || is_good || !is_done(number)) {
      return error_ && not_after(first_failed_, number) ? error_ : nullptr;
    }
  }
  examine();
  std::lock_guard lock(mutex_);
  return error_ && not_after(first_failed_, number) ? error_ : nullptr;
}

void DeviceWatch::on_end(Number number, std::function<void(std::exception_ptr)> then) {
  bool stopped = false;
  {
    std::lock_guard lock(mutex_);
    callbacks_.push_back({number, std::move(then)});
    stopped = stopped_;
  }
  changed_.notify_one();
  if (stopped) call_back();
}

void DeviceWatch::fail_all(const std::exception_ptr& error) {
  std::lock_guard lock(mutex_);
  if (error_) return;
  error_ = error;
  first_failed_ = entries_.empty() ? last_ + 1 : entries_.front().number;
  entries_.clear();
  changed_.notify_one();
}

bool DeviceWatch::drain(std::chrono::milliseconds limit) const {
  const auto deadline = Clock::now() + limit;
  Number last;
  {
    std::lock_guard lock(mutex_);
    last = last_;
  }
  while (!is_done(last)) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

std::string DeviceWatch::ask() {
  std::lock_guard lock(asking_);
  if (!may_ask_) return {};
  try {
    return find_error_();
  } catch (...) {
    return "agoq: how the group fares cannot be told: " + first_line(std::current_exception());
  }
}

std::string DeviceWatch::confirm() {
  // First this, then the question: what is found may have been there when the call went on.
  const Number done = std::atomic_ref(*word_).load(std::memory_order_acquire);
  auto reason = ask();
  if (!reason.empty()) return reason;
  std::lock_guard lock(mutex_);
  while (!entries_.empty() && not_after(entries_.front().number, done)) entries_.pop_front();
  return {};
}

std::string DeviceWatch::look() {
  {
    std::lock_guard lock(mutex_);
    if (entries_.empty()) return {};
  }
  auto reason = confirm();
  if (!reason.empty()) return reason;
  std::lock_guard lock(mutex_);
  if (entries_.empty()) return {};
  const auto& first = entries_.front();
  if (Clock::now() <= first.deadline || is_done(first.number)) return {};
  return first.what + " Timed out after " + std::to_string(first.timeout.count()) + " ms.";
}

void DeviceWatch::examine() {
  const auto reason = look();
  if (reason.empty()) return;
  try {
    throw_backend_error(reason);
  } catch (...) {
    fail_all(std::current_exception());
  }
  fail_(reason);
}

void DeviceWatch::call_back() {
  std::deque<Callback> ready;
  {
    std::lock_guard lock(mutex_);
    for (auto callback = callbacks_.begin(); callback != callbacks_.end();) {
      const bool failed = error_ && not_after(first_failed_, callback->number);
      if (!stopped_ && !failed && !is_done(callback->number)) {
        ++callback;
        continue;
      }
      ready.push_back(std::move(*callback));
      callback = callbacks_.erase(callback);
    }
  }
  for (const auto& callback : ready) {
    auto failure = error(callback.number);
    if (!failure && !is_done(callback.number)) failure = group_ended();
    callback.then(failure);
  }
}

void DeviceWatch::run() {
  pthread_setname_np(pthread_self(), "agoq_watch");
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    changed_.wait(lock, [this] { return stopped_ || !entries_.empty() || !callbacks_.empty(); });
    changed_.wait_for(lock, kInterval, [this] { return stopped_; });
    lock.unlock();
    examine();
    call_back();
    lock.lock();
  }
}

}  // namespace agoq
