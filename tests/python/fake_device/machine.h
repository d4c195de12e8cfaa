// A device without hardware: streams that are threads, events, and graphs. Work runs when its
// stream comes to it, after delays by seed, and everything asked of the device is written down.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace fake {

using Work = std::function<void()>;

/// One line of the log. `stream` is -1 where none is meant.
struct Entry {
  std::string what;
  int stream = -1;
  std::int64_t number = 0;  ///< Bytes, or the id of an event's recording.
};

/// Work that a stream has done, in nanoseconds of a clock that only goes on.
struct Span {
  std::string what;
  int stream = -1;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct Task {
  std::string what;  ///< Empty for what only orders streams.
  Work work;
};

struct Graph {
  std::vector<Task> work;
  std::map<int, int> submitted;  ///< By stream that takes part.
  int origin = 0;
};

/// One recording of an event.
struct Mark {
  std::int64_t id = 0;
  bool done = false;
  std::shared_ptr<Graph> graph;  ///< Set where it was recorded into one.
  std::map<int, int> seen;       ///< Of each stream of the graph: how much comes before it.
};
using MarkPtr = std::shared_ptr<Mark>;

/// Thread-safe, and alive until the process ends. Stream 0 is the default one.
class Machine {
 public:
  static constexpr int kStreams = 9;

  static Machine& get();

  /// Queues work, or adds it to the graph that the stream is being captured into.
  void submit(int stream, const std::string& what, Work work);
  MarkPtr record(int stream);
  void block(int stream, const MarkPtr& mark);
  /// Refused while any stream is captured, as CUDA refuses it to all threads.
  bool query(const MarkPtr& mark);
  void synchronize(const MarkPtr& mark);
  /// Waits for a mark on a stream's own thread, as work of that stream may.
  void await(const MarkPtr& mark);
  void begin_capture(int stream);
  std::shared_ptr<Graph> end_capture(int stream);
  bool is_capturing(int stream);
  void replay(const std::shared_ptr<Graph>& graph, int stream);

  /// From here on streams wait up to `most_microseconds` before what they do.
  void set_delays(std::uint32_t seed, int most_microseconds);
  /// While held no stream does anything.
  void hold(bool held);
  /// From here on the stream stops before work of that name; never where it is empty.
  void hold_before(int stream, const std::string& what);

  void note(Entry entry);
  std::vector<Entry> take_log();
  /// From here on, or no longer, what streams do is written down when it is done.
  void trace(bool traced);
  std::vector<Span> take_trace();

 private:
  struct Lane {
    std::deque<Task> queue;
    std::string stop_before;
    std::shared_ptr<Graph> graph;
    std::map<int, int> seen;
  };

  Machine();
  void run(int stream);
  bool is_held(const Lane& lane) const;
  void add(int stream, Task task);
  void require_no_capture(const std::string& what);

  std::mutex mutex_;
  std::condition_variable changed_;
  Lane lanes_[kStreams];
  int captures_ = 0;
  bool held_ = false;
  int most_delay_ = 0;
  std::mt19937 random_;
  std::int64_t marks_ = 0;
  std::vector<Entry> log_;
  bool traced_ = false;
  std::vector<Span> trace_;
};

}  // namespace fake
