// Which thread may issue operations to the inner backends of devices.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace agoq {

/// A backend such as NCCL's takes all that is issued between its startCoalescing() and
/// endCoalescing() for one exchange, whichever thread issues it. So a thread that opens such a
/// bracket holds this lock until it closes it, and other threads wait.
///
/// Thread-safe, and reentrant for the thread that holds it. A lock for std::lock_guard.
class IssueLock {
 public:
  /// `timeout` is how long lock() waits for another thread. It outlives the lock.
  explicit IssueLock(const std::atomic<std::chrono::milliseconds>& timeout) : timeout_(timeout) {}

  /// Throws a DistBackendError when that took too long: a thread may leave its bracket open.
  void lock();
  void unlock();

  /// Opens this thread's bracket, or begins it anew where an exception kept it from being closed.
  void open();
  /// Closes this thread's bracket, if there is one.
  void close();
  bool is_open_here() const;

 private:
  bool is_mine() const { return depth_ > 0 && owner_ == std::this_thread::get_id(); }

  const std::atomic<std::chrono::milliseconds>& timeout_;
  mutable std::mutex mutex_;
  std::condition_variable free_;
  std::thread::id owner_;
  int depth_ = 0;
  bool is_open_ = false;
};

}  // namespace agoq
