// How far a group's calls have come on their stream, and whether one takes too long.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "agoqcomm/device_runtime.h"

namespace agoq {

/// After every call the stream writes the call's number into a word of pinned memory. To read it
/// asks nothing of the device, so it is allowed while another thread captures a graph, when a query
/// of an event would spoil the capture. Numbers are of 32 bits and may wrap around.
///
/// A thread looks, while calls are unfinished, ten times a second: it notices a call that is past
/// its deadline and whatever `find_error` says, as torch's own watchdog does. A stream may also go
/// on past what has failed, so a call that is done counts as good only once `find_error` has been
/// asked after that. Thread-safe.
class DeviceWatch {
 public:
  using Number = std::uint32_t;
  using Clock = std::chrono::steady_clock;
  /// Told of what makes the group fail, by whoever noticed.
  using Fail = std::function<void(const std::string&)>;
  /// Words for what went wrong, or "".
  using FindError = std::function<std::string()>;

  /// `runtime` lives as long as the process, since works keep their watch.
  DeviceWatch(DeviceRuntime& runtime, FindError find_error, Fail fail);
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  /// Puts the end of a call on the stream that all calls share; `what` is the call in words.
  Number end_call(void* stream, std::string what, std::chrono::milliseconds timeout);
  bool is_done(Number number) const;
  /// Set for the calls that were not known to be good when the group failed, and for all later
  /// ones.
  std::exception_ptr error(Number number);
  /// Calls `then` once the call is done or failed, on the watch's thread; on the caller's, at once,
  /// after stop().
  void on_end(Number number, std::function<void(std::exception_ptr)> then);
  /// Counts what is done as good, unless something went wrong: then the words for that.
  std::string confirm();
  /// Fails all that is not known to be good.
  void fail_all(const std::exception_ptr& error);
  /// Ends the thread: from here on nothing is found. Who waits for a call that is not done is told
  /// that the group ended.
  void stop();
  /// Waits for all calls; false if that took longer than `limit`.
  bool drain(std::chrono::milliseconds limit) const;

 private:
  struct Entry {
    Number number;
    std::string what;
    std::chrono::milliseconds timeout;
    Clock::time_point deadline;
  };
  struct Callback {
    Number number;
    std::function<void(std::exception_ptr)> then;
  };

  void run();
  std::string ask();
  std::string look();
  void examine();
  void call_back();

  DeviceRuntime& runtime_;
  const FindError find_error_;
  const Fail fail_;
  std::uint32_t* const word_;

  std::mutex asking_;  ///< Held while `find_error_` is asked; taken before `mutex_`.
  bool may_ask_ = true;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Number last_ = 0;
  std::deque<Entry> entries_;  ///< Not known to be good yet.
  std::deque<Callback> callbacks_;
  std::exception_ptr error_;
  Number first_failed_ = 0;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace agoq
