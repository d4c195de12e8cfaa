// Staging: device memory over a host transport.
//
// An exchange puts on the stream: copies to pinned memory; "n is there" into one word of it; a wait
// for another word to say "n has come"; copies to device memory. The helper thread waits for the
// first word, moves the messages, and writes the second. Whatever fails, it writes the second word
// all the same: a stream that waited forever would hang the device.
//
// One set of buffers is enough: the copies of exchange n + 1 stand behind all of exchange n, on the
// same stream by its order, on another by an event.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "agoqcomm/device_staging.h"
#include "agoqcomm/error.h"
#include "transport/device/exchange_check.h"
#include "transport/device_staging/host_exchange.h"
#include "transport/device_staging/pinned_memory.h"

namespace agoq {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

class StagingTransport final : public DeviceTransport {
 public:
  StagingTransport(std::unique_ptr<Transport> host, DeviceRuntime& runtime,
                   std::chrono::milliseconds timeout)
      : host_(std::move(host)),
        runtime_(runtime),
        timeout_(timeout),
        name_("staging over " + std::string(host_->name())),
        words_(runtime),
        outgoing_(runtime),
        incoming_(runtime),
        copied_back_(runtime.create_event()) {
    try {
      std::byte* words = words_.reserve(2 * kAlignment);
      sent_ = reinterpret_cast<std::uint32_t*>(words);
      received_ = reinterpret_cast<std::uint32_t*>(words + kAlignment);
      *sent_ = *received_ = 0;
      helper_ = std::thread([this] { help(); });
    } catch (...) {
      runtime_.destroy_event(copied_back_);
      throw;
    }
  }

  ~StagingTransport() override {
    abort("the transport was destroyed");
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    has_job_.notify_one();
    helper_.join();
    runtime_.destroy_event(copied_back_);
  }

  std::string_view name() const override { return name_; }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  void exchange(std::span<const DeviceSend> sends, std::span<const DeviceReceive> receives,
                void* stream) override {
    check_exchange(name_, rank(), size(), sends, receives);
    throw_if_failed();
    if (number_ > 0) runtime_.wait(copied_back_, stream);
    HostExchange job;
    job.number = ++number_;
    copy_out(sends, job, stream);
    const std::vector<std::byte*> places = places_of(receives, job);
    runtime_.write_value(sent_, job.number, stream);
    const std::uint32_t number = job.number;
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    has_job_.notify_one();
    runtime_.wait_value(received_, number, stream);
    for (std::size_t i = 0; i < receives.size(); ++i) {
      runtime_.copy(receives[i].data, places[i], receives[i].bytes, stream);
    }
    runtime_.record(copied_back_, stream);
  }

  bool can_be_captured() const override { return false; }

  std::string error() override {
    const std::lock_guard lock(mutex_);
    return failure_ ? failure_->what() : "";
  }

  void abort(const std::string& reason) noexcept override {
    try {
      fail(Error(ErrorCode::kAborted, reason));
    } catch (...) {
      // Out of memory for the words: the host transport still ends the exchange.
    }
    host_->abort(reason);
  }

 private:
  // A result goes to all peers from the same memory: it is copied once.
  void copy_out(std::span<const DeviceSend> sends, HostExchange& job, void* stream) {
    std::size_t bytes = 0;
    for (const DeviceSend& send : sends) bytes += aligned(send.bytes);
    std::byte* place = outgoing_.reserve(bytes);
    const DeviceSend* last = nullptr;
    for (const DeviceSend& send : sends) {
      if (last == nullptr || send.data != last->data || send.bytes != last->bytes) {
        runtime_.copy(place, send.data, send.bytes, stream);
        job.sends.push_back({{}, place, send.bytes});
        place += aligned(send.bytes);
      }
      job.sends.back().peers.push_back(send.peer);
      last = &send;
    }
  }

  std::vector<std::byte*> places_of(std::span<const DeviceReceive> receives, HostExchange& job) {
    std::size_t bytes = 0;
    for (const DeviceReceive& receive : receives) bytes += aligned(receive.bytes);
    std::byte* place = incoming_.reserve(bytes);
    std::vector<std::byte*> places;
    for (const DeviceReceive& receive : receives) {
      job.receives.push_back({receive.peer, place, receive.bytes});
      places.push_back(place);
      place += aligned(receive.bytes);
    }
    return places;
  }

  void help() {
    while (const std::optional<HostExchange> job = next_job()) {
      try {
        await_copies(job->number);
        throw_if_failed();
        run_host_exchange(*host_, *job, timeout_);
      } catch (const Error& error) {
        fail(error);
      } catch (const std::exception& error) {
        fail(Error(ErrorCode::kSystem, error.what()));
      }
      std::atomic_ref(*received_).store(job->number, std::memory_order_release);
    }
  }

  std::optional<HostExchange> next_job() {
    std::unique_lock lock(mutex_);
    has_job_.wait(lock, [&] { return is_over_ || !jobs_.empty(); });
    if (jobs_.empty()) return std::nullopt;
    HostExchange job = std::move(jobs_.front());
    jobs_.pop_front();
    return job;
  }

  // Until the stream has copied out what exchange `number` sends, or the transport has failed. The
  // stream cannot wake a thread; the pauses grow, since what stands before it may take long.
  void await_copies(std::uint32_t number) {
    constexpr std::chrono::microseconds kLongest{50};
    std::chrono::microseconds pause{1};
    while (std::atomic_ref(*sent_).load(std::memory_order_acquire) != number) {
      if (!error().empty()) return;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongest);
    }
  }

  void throw_if_failed() {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(ErrorCode::kAborted, failure_->what(), failure_->peer());
  }
  void fail(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
  }

  const std::unique_ptr<Transport> host_;  // The helper's, but for abort().
  DeviceRuntime& runtime_;
  const std::chrono::milliseconds timeout_;
  const std::string name_;
  PinnedMemory words_;
  PinnedMemory outgoing_;
  PinnedMemory incoming_;
  void* const copied_back_;
  std::uint32_t* sent_ = nullptr;      // Written by the stream, read by the helper.
  std::uint32_t* received_ = nullptr;  // Written by the helper, read by the stream.
  std::uint32_t number_ = 0;

  std::mutex mutex_;
  std::condition_variable has_job_;
  std::deque<HostExchange> jobs_;
  std::optional<Error> failure_;
  bool is_over_ = false;
  std::thread helper_;
};

}  // namespace

std::unique_ptr<DeviceTransport> make_staging_transport(std::unique_ptr<Transport> host,
                                                        DeviceRuntime& runtime,
                                                        std::chrono::milliseconds timeout) {
  if (host == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "make_staging_transport: the host transport is null; make one, e.g. with "
                "make_tcp_transport()");
  }
  return std::make_unique<StagingTransport>(std::move(host), runtime, timeout);
}

}  // namespace agoq
