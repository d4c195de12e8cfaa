// The inproc transport for device memory. An exchange has two meetings of the ranks' threads:
//
//   record `ready` | first meeting  | wait for the senders' `ready`, copy, record `done`
//                  | second meeting | wait for the receivers' `done`
//
// Between the meetings a rank reads the others' lists and waits for their `ready`; after the second
// it waits for their `done`. Neither event is recorded again before everyone has waited for it:
// `ready` only after the second meeting, `done` only after the next exchange's first.
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "agoqcomm/device_inproc.h"
#include "agoqcomm/error.h"
#include "transport/device/exchange_check.h"

namespace agoq {
namespace {

constexpr std::string_view kName = "inproc";

class Group {
 public:
  Group(int size, DeviceRuntime& runtime) : runtime_(runtime), ends_(size) {
    try {
      for (End& end : ends_) {
        end.ready = runtime.create_event();
        end.done = runtime.create_event();
      }
    } catch (...) {
      destroy();
      throw;
    }
  }
  ~Group() { destroy(); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int size() const { return static_cast<int>(ends_.size()); }

  void exchange(int rank, std::span<const DeviceSend> sends,
                std::span<const DeviceReceive> receives, void* stream) {
    throw_if_ended();
    End& own = ends_[rank];
    runtime_.record(own.ready, stream);
    own.sends.assign(sends.begin(), sends.end());
    meet();
    for (const DeviceReceive& receive : receives) {
      const DeviceSend& send = find_send(receive, rank);
      runtime_.wait(ends_[receive.peer].ready, stream);
      runtime_.copy(receive.data, send.data, receive.bytes, stream);
    }
    runtime_.record(own.done, stream);
    meet();
    for (const DeviceSend& send : sends) runtime_.wait(ends_[send.peer].done, stream);
  }

  void end(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!ended_) ended_ = error;
    changed_.notify_all();
  }

  /// A rank that has left is missed by those who would still meet it, and by nobody else.
  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    left_ = rank;
    changed_.notify_all();
  }

  std::string error() {
    const std::lock_guard lock(mutex_);
    return ended_ ? ended_->what() : "";
  }

 private:
  struct End {
    void* ready = nullptr;
    void* done = nullptr;
    // Of the running exchange; read between its meetings. A copy: a rank that fails there returns
    // while others may still read.
    std::vector<DeviceSend> sends;
  };

  // Returns once every rank has come.
  void meet() {
    std::unique_lock lock(mutex_);
    throw_if_over();
    const std::uint64_t meeting = meetings_;
    if (++present_ == size()) {
      present_ = 0;
      ++meetings_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return meetings_ != meeting || ended_ || left_; });
    if (meetings_ == meeting) throw_if_over();
  }

  void throw_if_ended() {
    const std::lock_guard lock(mutex_);
    throw_if_over();
  }

  void throw_if_over() const {
    if (ended_) throw *ended_;
    if (left_) {
      throw Error(ErrorCode::kPeerFailed, "rank " + std::to_string(*left_) + " has left the group",
                  *left_);
    }
  }

  const DeviceSend& find_send(const DeviceReceive& receive, int rank) {
    for (const DeviceSend& send : ends_[receive.peer].sends) {
      if (send.peer != rank) continue;
      if (send.bytes == receive.bytes) return send;
      throw Error(ErrorCode::kMismatch,
                  "rank " + std::to_string(receive.peer) + " sends " + std::to_string(send.bytes) +
                      " bytes, and rank " + std::to_string(rank) + " expects " +
                      std::to_string(receive.bytes) + " from it: the ranks' calls differ",
                  receive.peer);
    }
    throw Error(ErrorCode::kMismatch,
                "rank " + std::to_string(rank) + " expects " + std::to_string(receive.bytes) +
                    " bytes from rank " + std::to_string(receive.peer) +
                    ", which sends it none: the ranks' calls differ",
                receive.peer);
  }

  void destroy() noexcept {
    for (const End& end : ends_) {
      if (end.ready != nullptr) runtime_.destroy_event(end.ready);
      if (end.done != nullptr) runtime_.destroy_event(end.done);
    }
  }

  DeviceRuntime& runtime_;
  std::vector<End> ends_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t meetings_ = 0;
  int present_ = 0;
  std::optional<Error> ended_;  // Why the group exchanges no more.
  std::optional<int> left_;     // A rank that was destroyed.
};

class DeviceInprocTransport final : public DeviceTransport {
 public:
  DeviceInprocTransport(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  ~DeviceInprocTransport() override { group_->leave(rank_); }

  std::string_view name() const override { return kName; }
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  void exchange(std::span<const DeviceSend> sends, std::span<const DeviceReceive> receives,
                void* stream) override {
    check_exchange(kName, rank_, size(), sends, receives);
    try {
      group_->exchange(rank_, sends, receives, stream);
    } catch (const Error& error) {
      group_->end(error);
      throw;
    }
  }

  bool can_be_captured() const override { return true; }
  std::string error() override { return group_->error(); }
  void abort(const std::string& reason) noexcept override {
    try {
      group_->end(Error(ErrorCode::kAborted, reason));
    } catch (...) {
      group_->leave(rank_);  // Out of memory for the words: it ends without them.
    }
  }

 private:
  std::shared_ptr<Group> group_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<DeviceTransport>> make_device_inproc_group(int size,
                                                                       DeviceRuntime& runtime) {
  if (size < 1) {
    throw Error(ErrorCode::kInvalidArgument, "make_device_inproc_group: the size is " +
                                                 std::to_string(size) + "; it must be 1 or more");
  }
  const auto group = std::make_shared<Group>(size, runtime);
  std::vector<std::unique_ptr<DeviceTransport>> transports;
  for (int rank = 0; rank < size; ++rank) {
    transports.push_back(std::make_unique<DeviceInprocTransport>(group, rank));
  }
  return transports;
}

}  // namespace agoq
