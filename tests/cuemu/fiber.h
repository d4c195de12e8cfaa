// A stack of its own that one OS thread switches to and from, known to the sanitizers.
#pragma once

#include <cstddef>
#include <functional>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cuemu {

/// Not thread-safe. The default-constructed fiber stands for the OS thread's own stack.
class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  /// Makes the fiber ready to run `entry`, which must not return, from its beginning. The calling
  /// thread's writes are ordered before it.
  void prepare(void (*entry)());
  /// Leaves the running fiber for another one. `is_last`: the running one will not run again.
  static void switch_to(Fiber& from, Fiber& to, bool is_last = false);
  /// To be called first in `entry`.
  static void arrived();
  /// Orders everything the fiber wrote before what its caller does next.
  void join(Fiber& host);
  /// Makes a default-constructed fiber stand for the calling thread.
  void adopt_thread();

 private:
  void* stack_pointer_ = nullptr;
  char* stack_ = nullptr;
  void* fake_stack_ = nullptr;  ///< Of AddressSanitizer.
  void* tsan_ = nullptr;        ///< Of ThreadSanitizer.
#if !defined(__x86_64__)
  ucontext_t context_;
#endif
};

}  // namespace cuemu
