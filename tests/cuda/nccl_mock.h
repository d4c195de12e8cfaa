// What the mock NCCL has beside NCCL's functions. A test finds these by dlsym().
#pragma once

namespace agoq::testing {

/// Puts work on a stream of whatever device the test has: called until it returns other than 0.
using NcclMockEnqueue = void (*)(void* stream, int (*work)(void* argument), void* argument);

struct NcclMock {
  void (*set_enqueue)(NcclMockEnqueue enqueue);
  /// Fills `communicators` with those of a new group.
  void (*make_group)(int size, void** communicators);
  void (*destroy_group)(void* communicator);
  /// From now on `function` ("ncclSend", ...) returns `result`; 0 makes it work again.
  void (*fail)(const char* function, int result);
  /// What ncclCommGetAsyncError() says of the group, for the next `times` questions and then
  /// `afterwards`.
  void (*set_async_error)(void* communicator, int error, int times, int afterwards);
  /// Groups that the calling thread has opened and not closed.
  int (*open_groups)();
};

}  // namespace agoq::testing
