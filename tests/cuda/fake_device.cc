#include "fake_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <thread>

namespace agoq::testing {

// One thing of a captured stream.
struct Captured {
  enum class Kind { kWork, kRecord, kWait };
  Kind kind;
  FakeDevice::Work work;  // Of kWork.
  int mark = 0;           // Of kRecord and kWait: which record.
};

class FakeDevice::Graph {
 public:
  std::vector<std::vector<Captured>> streams;
  int marks = 0;
};

struct FakeDevice::Event {
  std::shared_ptr<bool> has_happened;  // Of the last record; null before the first.
  int capture = 0;                     // Number of the capture that the last record is in, or 0.
  int mark = 0;
};

struct FakeDevice::Stream {
  std::deque<Work> queue;
  unsigned priority = 0;
  int captured_as = -1;  // Its place in the running capture.
};

struct FakeDevice::Capture {
  int number;
  Graph graph;
  std::set<int> awaited;  // Marks that some stream waits for.
};

FakeDevice::FakeDevice(unsigned seed)
    : random_(seed), haste_(static_cast<int>(seed % 3)), is_biased_(seed / 3 % 2 == 1) {
  streams_.push_back(std::make_unique<Stream>());
}

FakeDevice::~FakeDevice() = default;

void FakeDevice::make(const char* what) {
  if (capture_) throw std::logic_error(std::string("making ") + what + " during a capture");
  ++made_;
}

void* FakeDevice::create_stream() {
  const std::lock_guard lock(mutex_);
  make("a stream");
  streams_.push_back(std::make_unique<Stream>());
  streams_.back()->priority = static_cast<unsigned>(random_());
  return streams_.back().get();
}

void FakeDevice::destroy_stream(void* stream) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [&](const auto& candidate) { return candidate.get() == stream; });
}

FakeDevice::Stream& FakeDevice::as_stream(void* stream) {
  return stream == nullptr ? *streams_.front() : *static_cast<Stream*>(stream);
}

bool FakeDevice::is_capturing(void* stream) {
  const std::lock_guard lock(mutex_);
  return as_stream(stream).captured_as >= 0;
}

void* FakeDevice::create_event() {
  const std::lock_guard lock(mutex_);
  make("an event");
  return new Event;
}

void FakeDevice::destroy_event(void* event) noexcept { delete static_cast<Event*>(event); }

void FakeDevice::record(void* event, void* stream) {
  const std::lock_guard lock(mutex_);
  Stream& on = as_stream(stream);
  Event& recorded = *static_cast<Event*>(event);
  recorded.capture = on.captured_as >= 0 ? capture_->number : 0;
  if (recorded.capture != 0) {
    recorded.mark = capture_->graph.marks++;
    capture_->graph.streams[on.captured_as].push_back({Captured::Kind::kRecord, {}, recorded.mark});
    return;
  }
  recorded.has_happened = std::make_shared<bool>(false);
  put(on, [flag = recorded.has_happened] { return *flag = true; });
}

void FakeDevice::wait(void* event, void* stream) {
  const std::lock_guard lock(mutex_);
  Stream& on = as_stream(stream);
  const Event& awaited = *static_cast<Event*>(event);
  if (capture_ && awaited.capture == capture_->number) {
    if (on.captured_as < 0) {  // It joins the capture.
      on.captured_as = static_cast<int>(capture_->graph.streams.size());
      capture_->graph.streams.emplace_back();
    }
    capture_->awaited.insert(awaited.mark);
    capture_->graph.streams[on.captured_as].push_back({Captured::Kind::kWait, {}, awaited.mark});
    return;
  }
  if (on.captured_as >= 0) throw std::logic_error("a captured stream waits for what is not");
  if (!awaited.has_happened) throw std::logic_error("a wait for an event that nobody recorded");
  put(on, [flag = awaited.has_happened] { return *flag; });
}

void FakeDevice::copy(void* to, const void* from, std::size_t bytes, void* stream) {
  enqueue(stream, [=] {
    std::memcpy(to, from, bytes);
    return true;
  });
}

void* FakeDevice::allocate_pinned(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  make("pinned memory");
  return ::operator new(bytes, std::align_val_t{64});
}

void FakeDevice::free_pinned(void* memory) noexcept {
  ::operator delete(memory, std::align_val_t{64});
}

void FakeDevice::write_value(std::uint32_t* word, std::uint32_t value, void* stream) {
  enqueue(stream, [=] {
    std::atomic_ref(*word).store(value, std::memory_order_release);
    return true;
  });
}

void FakeDevice::wait_value(std::uint32_t* word, std::uint32_t value, void* stream) {
  enqueue(stream, [=] {
    return static_cast<std::int32_t>(std::atomic_ref(*word).load(std::memory_order_acquire) -
                                     value) >= 0;
  });
}

void FakeDevice::enqueue(void* stream, Work work) {
  const std::lock_guard lock(mutex_);
  put(as_stream(stream), std::move(work));
}

void FakeDevice::poison(void* memory, std::size_t bytes, void* stream) {
  enqueue(stream, [=] {
    std::memset(memory, 0xFF, bytes);
    return true;
  });
}

void FakeDevice::put(Stream& stream, Work work) {
  if (stream.captured_as >= 0) {
    capture_->graph.streams[stream.captured_as].push_back(
        {Captured::Kind::kWork, std::move(work), 0});
    return;
  }
  stream.queue.push_back(std::move(work));
  lag();
}

void FakeDevice::lag() {
  if (haste_ == 0) return;
  for (auto steps = haste_ == 1 ? random_() % 4 : ~0u; steps > 0 && step(); --steps) {
  }
}

// Runs one thing that can run; false where there is none.
bool FakeDevice::step() {
  std::vector<Stream*> order;
  for (const auto& stream : streams_) {
    if (!stream->queue.empty()) order.push_back(stream.get());
  }
  std::shuffle(order.begin(), order.end(), random_);
  if (is_biased_ && random_() % 8 != 0) {
    std::sort(order.begin(), order.end(),
              [](const Stream* a, const Stream* b) { return a->priority > b->priority; });
  }
  for (Stream* stream : order) {
    has_moved_ = false;
    const bool is_done = stream->queue.front()();
    if (is_done) stream->queue.pop_front();
    if (is_done || has_moved_) return true;
  }
  return false;
}

void FakeDevice::finish() {
  using Clock = std::chrono::steady_clock;
  Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      while (step()) deadline = Clock::now() + std::chrono::seconds(20);
      if (std::all_of(streams_.begin(), streams_.end(),
                      [](const auto& stream) { return stream->queue.empty(); })) {
        return;
      }
    }
    // What is left waits for a thread of the host.
    if (Clock::now() > deadline) throw std::logic_error("the device is stuck");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void FakeDevice::begin_capture(void* stream) {
  const std::lock_guard lock(mutex_);
  capture_ = std::make_unique<Capture>();
  capture_->number = ++captures_;
  capture_->graph.streams.emplace_back();
  as_stream(stream).captured_as = 0;
}

std::shared_ptr<FakeDevice::Graph> FakeDevice::end_capture(void* stream) {
  const std::lock_guard lock(mutex_);
  if (as_stream(stream).captured_as != 0) throw std::logic_error("another stream began to capture");
  const std::vector<std::vector<Captured>>& streams = capture_->graph.streams;
  for (std::size_t i = 1; i < streams.size(); ++i) {
    const Captured& last = streams[i].back();
    if (last.kind != Captured::Kind::kRecord || !capture_->awaited.contains(last.mark)) {
      throw std::logic_error("a stream was not joined before the capture ended");
    }
  }
  for (const auto& candidate : streams_) candidate->captured_as = -1;
  auto graph = std::make_shared<Graph>(std::move(capture_->graph));
  capture_.reset();
  return graph;
}

void FakeDevice::replay(const std::shared_ptr<Graph>& graph, void* stream) {
  struct Run {
    std::vector<std::size_t> done;
    std::vector<bool> marks;
  };
  auto run = std::make_shared<Run>();
  run->done.resize(graph->streams.size());
  run->marks.resize(static_cast<std::size_t>(graph->marks));
  // One thing a call, so that other streams get in between.
  enqueue(stream, [this, graph, run] {
    std::vector<std::size_t> order(graph->streams.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    bool is_done = true;
    for (const std::size_t i : order) {
      if (run->done[i] == graph->streams[i].size()) continue;
      is_done = false;
      const Captured& next = graph->streams[i][run->done[i]];
      if (next.kind == Captured::Kind::kWait && !run->marks[next.mark]) continue;
      if (next.kind == Captured::Kind::kWork && !next.work()) continue;
      if (next.kind == Captured::Kind::kRecord) run->marks[next.mark] = true;
      ++run->done[i];
      has_moved_ = true;
      return false;
    }
    return is_done;
  });
}

int FakeDevice::things_made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

}  // namespace agoq::testing
