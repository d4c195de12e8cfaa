// This file is never compiled with -fsanitize=thread, which knows no switches of stacks; where the
// kernels are, CUEMU_TSAN tells it to announce each CUDA thread as a fiber.
#include "cuemu/fiber.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(CUEMU_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

#if defined(__x86_64__)
// swapcontext would make a system call for the signal mask at every switch.
extern "C" void cuemu_switch(void** save, void* load);
asm(R"(
    .text
    .type cuemu_switch,@function
cuemu_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp,(%rdi)
    mov %rsi,%rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
    .size cuemu_switch,.-cuemu_switch
)");
#endif

namespace cuemu {
namespace {

constexpr std::size_t kGuard = 4096;
constexpr std::size_t kStack = 64 * 1024;

// The OS thread's own stack, as AddressSanitizer reports it.
[[maybe_unused]] const void* thread_stack = nullptr;
[[maybe_unused]] std::size_t thread_stack_size = 0;

}  // namespace

Fiber::~Fiber() {
#if defined(CUEMU_TSAN)
  if (stack_ != nullptr && tsan_ != nullptr) __tsan_destroy_fiber(tsan_);
#endif
  if (stack_ != nullptr) munmap(stack_ - kGuard, kStack + kGuard);
}

void Fiber::adopt_thread() {
#if defined(CUEMU_TSAN)
  tsan_ = __tsan_get_current_fiber();
#endif
}

void Fiber::prepare(void (*entry)()) {
  if (stack_ == nullptr) {
    void* memory =
        mmap(nullptr, kStack + kGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, kGuard, PROT_NONE) != 0) throw std::bad_alloc();
    stack_ = static_cast<char*>(memory) + kGuard;
  }
#if defined(__x86_64__)
  auto* top = reinterpret_cast<void**>(stack_ + kStack);
  *--top = nullptr;  // entry's return address: the stack is aligned as after a call
  *--top = reinterpret_cast<void*>(entry);
  for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
  stack_pointer_ = top;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = kStack;
  makecontext(&context_, entry, 0);
#endif
  fake_stack_ = nullptr;
#if defined(CUEMU_TSAN)
  if (tsan_ == nullptr) tsan_ = __tsan_create_fiber(0);
  void* self = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_, 0);
  __tsan_switch_to_fiber(self, __tsan_switch_to_fiber_no_sync);
#endif
}

void Fiber::switch_to(Fiber& from, Fiber& to, [[maybe_unused]] bool is_last) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(is_last ? nullptr : &from.fake_stack_,
                                 to.stack_ == nullptr ? thread_stack : to.stack_,
                                 to.stack_ == nullptr ? thread_stack_size : kStack);
#endif
#if defined(CUEMU_TSAN)
  __tsan_switch_to_fiber(to.tsan_, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__x86_64__)
  cuemu_switch(&from.stack_pointer_, to.stack_pointer_);
#else
  swapcontext(&from.context_, &to.context_);
#endif
#if defined(__SANITIZE_ADDRESS__)
  const void* left = nullptr;
  std::size_t size = 0;
  __sanitizer_finish_switch_fiber(from.fake_stack_, &left, &size);
  if (from.stack_ != nullptr) {
    thread_stack = left;
    thread_stack_size = size;
  }
#endif
}

void Fiber::arrived() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &thread_stack, &thread_stack_size);
#endif
}

void Fiber::join([[maybe_unused]] Fiber& host) {
#if defined(CUEMU_TSAN)
  __tsan_switch_to_fiber(tsan_, __tsan_switch_to_fiber_no_sync);
  __tsan_switch_to_fiber(host.tsan_, 0);
#endif
}

}  // namespace cuemu
