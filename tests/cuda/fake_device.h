// A simulated device: streams are queues that run in a random order, held back by nothing but their
// own order and events. What a real device may do in any order happens here in many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "agoqcomm/device_runtime.h"

namespace agoq::testing {

/// Thread-safe. Misuse that CUDA would refuse (a wait for an event that nobody recorded, making
/// things during a capture, a capture that was not joined) throws std::logic_error.
class FakeDevice final : public DeviceRuntime {
 public:
  /// Called until it returns true; then the next thing of its stream may run.
  using Work = std::function<bool()>;
  class Graph;

  /// The seed decides in which order streams run, and how far the device lags behind the host.
  explicit FakeDevice(unsigned seed);
  ~FakeDevice() override;

  void* create_stream() override;
  void destroy_stream(void* stream) noexcept override;
  bool is_capturing(void* stream) override;
  void* create_event() override;
  void destroy_event(void* event) noexcept override;
  void record(void* event, void* stream) override;
  void wait(void* event, void* stream) override;
  void copy(void* to, const void* from, std::size_t bytes, void* stream) override;
  void* allocate_pinned(std::size_t bytes) override;
  void free_pinned(void* memory) noexcept override;
  void write_value(std::uint32_t* word, std::uint32_t value, void* stream) override;
  void wait_value(std::uint32_t* word, std::uint32_t value, void* stream) override;

  void enqueue(void* stream, Work work);
  /// Overwrites memory in the stream's order, as whoever gets it next may do.
  void poison(void* memory, std::size_t bytes, void* stream);
  /// Runs everything to its end. Throws std::logic_error where nothing goes on for 20 seconds.
  void finish();

  void begin_capture(void* stream);
  std::shared_ptr<Graph> end_capture(void* stream);
  /// Everything in the graph, in any order that its streams and events allow.
  void replay(const std::shared_ptr<Graph>& graph, void* stream);

  /// Streams, events and pinned memory made so far: what a steady state makes none of.
  int things_made() const;

 private:
  struct Event;
  struct Stream;
  struct Capture;

  Stream& as_stream(void* stream);
  void put(Stream& stream, Work work);
  void lag();
  bool step();
  void make(const char* what);

  mutable std::mutex mutex_;
  std::mt19937 random_;
  int haste_;       // 0: runs in finish() alone; 1: now and then; 2: whenever it can.
  bool is_biased_;  // Prefers some streams to others.
  std::vector<std::unique_ptr<Stream>> streams_;  // The first is the default stream.
  std::unique_ptr<Capture> capture_;              // The running one.
  int captures_ = 0;
  int made_ = 0;
  bool has_moved_ = false;  // A graph went on without having ended.
};

}  // namespace agoq::testing
