#include "machine.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace fake {
namespace {

std::int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

Machine& Machine::get() {
  // Never destroyed: its threads run until the process ends.
  static auto* const machine = new Machine;
  return *machine;
}

Machine::Machine() {
  for (int stream = 0; stream < kStreams; ++stream) {
    std::thread([this, stream] { run(stream); }).detach();
  }
}

void Machine::run(int stream) {
  auto& lane = lanes_[stream];
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !lane.queue.empty() && !is_held(lane); });
    // Ended without the lock, since what it holds may use the machine when it dies.
    auto task = std::move(lane.queue.front());
    lane.queue.pop_front();
    const auto delay =
        std::chrono::microseconds(most_delay_ == 0 ? 0 : random_() % (most_delay_ + 1));
    lock.unlock();
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    const auto begin = now();
    task.work();
    const auto end = now();
    task.work = nullptr;
    lock.lock();
    if (traced_ && !task.what.empty()) {
      trace_.push_back({std::move(task.what), stream, begin, end});
    }
  }
}

bool Machine::is_held(const Lane& lane) const {
  return held_ || (!lane.stop_before.empty() && lane.queue.front().what == lane.stop_before);
}

void Machine::add(int stream, Task task) {
  auto& lane = lanes_[stream];
  if (lane.graph) {
    lane.graph->work.push_back(std::move(task));
    lane.seen[stream] = ++lane.graph->submitted[stream];
  } else {
    lane.queue.push_back(std::move(task));
    changed_.notify_all();
  }
}

void Machine::submit(int stream, const std::string& what, Work work) {
  std::lock_guard lock(mutex_);
  log_.push_back({what, stream});
  add(stream, {what, std::move(work)});
}

MarkPtr Machine::record(int stream) {
  std::lock_guard lock(mutex_);
  auto mark = std::make_shared<Mark>();
  mark->id = ++marks_;
  log_.push_back({"record", stream, mark->id});
  auto& lane = lanes_[stream];
  mark->graph = lane.graph;
  mark->seen = lane.seen;
  if (!lane.graph) {
    add(stream, {"", [this, mark] {
                   std::lock_guard lock(mutex_);
                   mark->done = true;
                   changed_.notify_all();
                 }});
  }
  return mark;
}

void Machine::block(int stream, const MarkPtr& mark) {
  std::lock_guard lock(mutex_);
  log_.push_back({"block", stream, mark->id});
  auto& lane = lanes_[stream];
  if (mark->graph) {
    if (!lane.graph) {
      lane.graph = mark->graph;
      lane.seen.clear();
      lane.graph->submitted[stream];
    }
    for (const auto& [other, count] : mark->seen) {
      lane.seen[other] = std::max(lane.seen[other], count);
    }
    return;
  }
  if (lane.graph) throw std::runtime_error("fake: a captured stream waits for work outside");
  add(stream, {"", [this, mark] { await(mark); }});
}

void Machine::require_no_capture(const std::string& what) {
  if (captures_ > 0) {
    throw std::runtime_error("fake: " + what + " is not permitted while a stream is captured");
  }
}

bool Machine::query(const MarkPtr& mark) {
  std::lock_guard lock(mutex_);
  log_.push_back({"query", -1, mark->id});
  require_no_capture("a query");
  if (mark->graph) throw std::runtime_error("fake: the event was recorded into a graph");
  return mark->done;
}

void Machine::synchronize(const MarkPtr& mark) {
  {
    std::lock_guard lock(mutex_);
    log_.push_back({"host waits", -1, mark->id});
    require_no_capture("waiting");
  }
  await(mark);
}

void Machine::await(const MarkPtr& mark) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return mark->done; });
}

void Machine::begin_capture(int stream) {
  std::lock_guard lock(mutex_);
  auto& lane = lanes_[stream];
  lane.graph = std::make_shared<Graph>();
  lane.graph->origin = stream;
  lane.seen.clear();
  ++captures_;
}

std::shared_ptr<Graph> Machine::end_capture(int stream) {
  std::lock_guard lock(mutex_);
  const auto graph = lanes_[stream].graph;
  auto seen = lanes_[stream].seen;
  --captures_;
  for (auto& lane : lanes_) {
    if (lane.graph == graph) lane.graph = nullptr;
  }
  for (const auto& [other, count] : graph->submitted) {
    if (seen[other] < count) {
      throw std::runtime_error("fake: the capture ends with work that nothing waits for");
    }
  }
  return graph;
}

bool Machine::is_capturing(int stream) {
  std::lock_guard lock(mutex_);
  return lanes_[stream].graph != nullptr;
}

void Machine::replay(const std::shared_ptr<Graph>& graph, int stream) {
  std::lock_guard lock(mutex_);
  for (const auto& task : graph->work) add(stream, task);
}

void Machine::set_delays(std::uint32_t seed, int most_microseconds) {
  std::lock_guard lock(mutex_);
  random_.seed(seed);
  most_delay_ = most_microseconds;
}

void Machine::hold(bool held) {
  std::lock_guard lock(mutex_);
  held_ = held;
  changed_.notify_all();
}

void Machine::hold_before(int stream, const std::string& what) {
  std::lock_guard lock(mutex_);
  lanes_[stream].stop_before = what;
  changed_.notify_all();
}

void Machine::note(Entry entry) {
  std::lock_guard lock(mutex_);
  log_.push_back(std::move(entry));
}

void Machine::trace(bool traced) {
  std::lock_guard lock(mutex_);
  traced_ = traced;
}

std::vector<Span> Machine::take_trace() {
  std::lock_guard lock(mutex_);
  return std::exchange(trace_, {});
}

std::vector<Entry> Machine::take_log() {
  std::lock_guard lock(mutex_);
  return std::exchange(log_, {});
}

}  // namespace fake
