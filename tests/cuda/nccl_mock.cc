// A library with the few NCCL functions that the transport uses. Ranks share memory; a group of
// sends and receives is one piece of work on a stream, which goes on once its peers' streams are at
// theirs. As with NCCL, sent memory is read late: when the receiver is there, not before.
//
//   MOCK_VERSION       what ncclGetVersion() says
//   MOCK_WITHOUT_RECV  leaves ncclRecv() out
#include "nccl_mock.h"

#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

#ifndef MOCK_VERSION
#define MOCK_VERSION 22809
#endif

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 4;
constexpr int kUint8 = 1;

struct Message {
  const void* data;
  std::size_t bytes;
  bool is_read = false;
};

struct Group {
  int size;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>>
      on_the_way;  // By sender, receiver.
  int async_error = 0;
  int async_times = 0;
  int async_afterwards = 0;
};

struct Communicator {
  std::shared_ptr<Group> group;
  int rank;
};

struct Part {
  bool is_send;
  int peer;
  void* data;
  std::size_t bytes;
};

struct Job {
  Communicator* communicator;
  std::vector<Part> parts;
  bool has_begun = false;
  std::vector<std::shared_ptr<Message>> sent;
};

std::mutex mutex;  // Of all that is below, and of groups.
agoq::testing::NcclMockEnqueue enqueue = nullptr;
std::map<std::string, int> failures;
std::map<void*, std::unique_ptr<Job>> jobs;  // On streams.

thread_local int depth = 0;
thread_local Communicator* open_communicator = nullptr;
thread_local void* open_stream = nullptr;
thread_local std::vector<Part> open_parts;

int outcome_of(const char* function) {
  const std::lock_guard lock(mutex);
  const auto found = failures.find(function);
  return found == failures.end() ? kSuccess : found->second;
}

int run(void* argument) {
  const std::lock_guard lock(mutex);
  Job& job = *static_cast<Job*>(argument);
  Group& group = *job.communicator->group;
  const int rank = job.communicator->rank;
  if (!job.has_begun) {
    job.has_begun = true;
    for (const Part& part : job.parts) {
      if (!part.is_send) continue;
      job.sent.push_back(std::make_shared<Message>(Message{part.data, part.bytes}));
      group.on_the_way[{rank, part.peer}].push_back(job.sent.back());
    }
  }
  std::erase_if(job.parts, [&](const Part& part) {
    if (part.is_send) return true;
    auto& messages = group.on_the_way[{part.peer, rank}];
    if (messages.empty() || messages.front()->bytes != part.bytes) return false;
    std::memcpy(part.data, messages.front()->data, part.bytes);
    messages.front()->is_read = true;
    messages.pop_front();
    return true;
  });
  bool is_done = job.parts.empty();
  for (const auto& message : job.sent) is_done = is_done && message->is_read;
  if (is_done) jobs.erase(&job);
  return is_done;
}

int add(const char* function, const Part& part, int type, void* communicator, void* stream) {
  if (const int result = outcome_of(function); result != kSuccess) return result;
  auto* of = static_cast<Communicator*>(communicator);
  if (depth == 0 || type != kUint8 || part.peer == of->rank || part.peer >= of->group->size) {
    return kInvalidArgument;
  }
  open_communicator = of;
  open_stream = stream;
  open_parts.push_back(part);
  return kSuccess;
}

}  // namespace

EXPORT int ncclGetVersion(int* version) {
  *version = MOCK_VERSION;
  return kSuccess;
}

EXPORT const char* ncclGetErrorString(int error) {
  return error == 2 ? "unhandled system error" : error == 6 ? "remote process exited" : "an error";
}

EXPORT const char* ncclGetLastError(void*) { return "the mock's last words"; }

EXPORT int ncclGroupStart() {
  if (const int result = outcome_of("ncclGroupStart"); result != kSuccess) return result;
  ++depth;
  return kSuccess;
}

EXPORT int ncclSend(const void* data, std::size_t count, int type, int peer, void* communicator,
                    void* stream) {
  return add("ncclSend", {true, peer, const_cast<void*>(data), count}, type, communicator, stream);
}

#ifndef MOCK_WITHOUT_RECV
EXPORT int ncclRecv(void* data, std::size_t count, int type, int peer, void* communicator,
                    void* stream) {
  return add("ncclRecv", {false, peer, data, count}, type, communicator, stream);
}
#endif

EXPORT int ncclGroupEnd() {
  --depth;
  std::vector<Part> parts = std::move(open_parts);
  open_parts.clear();
  const int result = outcome_of("ncclGroupEnd");
  constexpr int kInProgress = 7;
  if ((result == kSuccess || result == kInProgress) && !parts.empty()) {
    auto job = std::make_unique<Job>(Job{open_communicator, std::move(parts), false, {}});
    void* argument = job.get();
    {
      const std::lock_guard lock(mutex);
      jobs[argument] = std::move(job);
    }
    enqueue(open_stream, run, argument);
  }
  return result;
}

EXPORT int ncclCommCount(void* communicator, int* count) {
  *count = static_cast<Communicator*>(communicator)->group->size;
  return outcome_of("ncclCommCount");
}

EXPORT int ncclCommUserRank(void* communicator, int* rank) {
  *rank = static_cast<Communicator*>(communicator)->rank;
  return kSuccess;
}

EXPORT int ncclCommGetAsyncError(void* communicator, int* error) {
  const std::lock_guard lock(mutex);
  Group& group = *static_cast<Communicator*>(communicator)->group;
  *error = group.async_times > 0 ? group.async_error : group.async_afterwards;
  if (group.async_times > 0) --group.async_times;
  return kSuccess;
}

namespace agoq::testing {
namespace {

void set_enqueue(NcclMockEnqueue function) { enqueue = function; }

void make_group(int size, void** communicators) {
  const auto group = std::make_shared<Group>(Group{size, {}});
  for (int rank = 0; rank < size; ++rank) communicators[rank] = new Communicator{group, rank};
}

void destroy_group(void* communicator) { delete static_cast<Communicator*>(communicator); }

void fail(const char* function, int result) {
  const std::lock_guard lock(mutex);
  failures[function] = result;
}

void set_async_error(void* communicator, int error, int times, int afterwards) {
  const std::lock_guard lock(mutex);
  Group& group = *static_cast<::Communicator*>(communicator)->group;
  group.async_error = error;
  group.async_times = times;
  group.async_afterwards = afterwards;
}

int open_groups() { return depth; }

}  // namespace
}  // namespace agoq::testing

EXPORT const agoq::testing::NcclMock* agoq_nccl_mock() {
  using namespace agoq::testing;
  static const NcclMock mock{set_enqueue, make_group,      destroy_group,
                             fail,        set_async_error, open_groups};
  return &mock;
}
