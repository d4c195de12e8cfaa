#include "codec/codec_threads.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <system_error>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace agoq {
namespace {

// A helper polls this often before it sleeps: about as long as the gap between two segments of a
// call whose data keeps coming.
constexpr int kPolls = 1000;

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

constexpr std::uint64_t packed(std::uint32_t run, int parts, int next) {
  return std::uint64_t{run} << 32 | static_cast<std::uint64_t>(parts) << 16 |
         static_cast<std::uint64_t>(next);
}
constexpr int parts_of(std::uint64_t claims) { return static_cast<int>(claims >> 16 & 0xffff); }
constexpr int next_of(std::uint64_t claims) { return static_cast<int>(claims & 0xffff); }

}  // namespace

CodecThreads::CodecThreads(int threads) : threads_(threads) {}

CodecThreads::~CodecThreads() {
  if (helpers_.empty()) return;
  if (pid_ != ::getpid()) {
    // A forked child's copy: there are no threads to join, and a std::thread that was not joined
    // must not be destroyed.
    new std::vector<std::thread>(std::move(helpers_));
    return;
  }
  ending_.store(true, std::memory_order_release);
  runs_.fetch_add(1, std::memory_order_release);
  runs_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void CodecThreads::run(int parts, const std::function<void(int)>& work) {
  const std::unique_lock lock(running_, std::try_to_lock);
  if (!lock.owns_lock() || parts < 2 || !has_helpers()) {
    for (int part = 0; part < parts; ++part) work(part);
    return;
  }
  work_ = &work;
  unfinished_.store(parts, std::memory_order_relaxed);
  const std::uint32_t number = runs_.load(std::memory_order_relaxed) + 1;
  claims_.store(packed(number, parts, 0), std::memory_order_release);
  runs_.store(number, std::memory_order_release);
  runs_.notify_all();
  while (do_one_part()) {
  }
  // What is left is being done, and short.
  for (int polls = 0; unfinished_.load(std::memory_order_acquire) != 0; ++polls) {
    polls < kPolls ? pause_briefly() : std::this_thread::yield();
  }
}

bool CodecThreads::do_one_part() {
  std::uint64_t claims = claims_.load(std::memory_order_acquire);
  do {
    if (next_of(claims) >= parts_of(claims)) return false;
  } while (!claims_.compare_exchange_weak(claims, claims + 1, std::memory_order_acq_rel,
                                          std::memory_order_acquire));
  (*work_)(next_of(claims));
  unfinished_.fetch_sub(1, std::memory_order_release);
  return true;
}

bool CodecThreads::has_helpers() {
  if (pid_ == 0) start();
  return pid_ == ::getpid();
}

void CodecThreads::start() {
  pid_ = ::getpid();
  // Signals are for the application's own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    while (static_cast<int>(helpers_.size()) < threads_ - 1)
      helpers_.emplace_back([this] { help(); });
  } catch (const std::system_error&) {
    // The system has no more threads: the caller does with those there are.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void CodecThreads::help() {
  std::uint32_t seen = 0;
  while (!ending_.load(std::memory_order_acquire)) {
    while (do_one_part()) {
    }
    for (int polls = 0; polls < kPolls && runs_.load(std::memory_order_acquire) == seen; ++polls) {
      pause_briefly();
    }
    runs_.wait(seen, std::memory_order_acquire);
    seen = runs_.load(std::memory_order_acquire);
  }
}

}  // namespace agoq
