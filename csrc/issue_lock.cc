#include "issue_lock.h"

#include <string>

#include "errors.h"

namespace agoq {

void IssueLock::lock() {
  std::unique_lock lock(mutex_);
  if (!is_mine()) {
    const auto timeout = timeout_.load();
    if (!free_.wait_for(lock, timeout, [this] { return depth_ == 0; })) {
      throw_backend_error("agoq: Timed out after " + std::to_string(timeout.count()) +
                          " ms while another thread issued operations to this group; a thread that "
                          "starts coalescing must end it.");
    }
    owner_ = std::this_thread::get_id();
  }
  ++depth_;
}

void IssueLock::unlock() {
  {
    std::lock_guard lock(mutex_);
    if (--depth_ > 0) return;
  }
  free_.notify_one();
}

void IssueLock::open() {
  lock();
  {
    std::lock_guard lock(mutex_);
    if (!is_open_) {
      is_open_ = true;
      return;
    }
  }
  unlock();
}

void IssueLock::close() {
  {
    std::lock_guard lock(mutex_);
    if (!is_mine() || !is_open_) return;
    is_open_ = false;
  }
  unlock();
}

bool IssueLock::is_open_here() const {
  std::lock_guard lock(mutex_);
  return is_open_ && is_mine();
}

}  // namespace agoq
