#include "agoqcomm/communicator.h"

#include <condition_variable>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "agoqcomm/codec.h"
#include "agoqcomm/error.h"
#include "agoqcomm/version.h"
#include "collective/all_gather.h"
#include "collective/all_reduce.h"
#include "collective/call_driver.h"
#include "collective/call_label.h"
#include "collective/chunk_plan.h"
#include "collective/exact_exchange.h"
#include "collective/exact_reduce.h"
#include "collective/label_check.h"
#include "collective/quantized_exchange.h"
#include "collective/reduce_scatter.h"
#include "collective/stopwatch.h"

namespace agoq {
namespace {

[[noreturn]] void refuse(Operation operation, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, std::string(to_string(operation)) + ": " + what);
}

void check_count(Operation operation, std::int64_t count) {
  if (count < 0) {
    refuse(operation, "the count is " + std::to_string(count) + "; it must be 0 or more");
  }
}

void check_memory(Operation operation, const void* memory, std::int64_t count, const char* name) {
  if (count > 0 && memory == nullptr) {
    refuse(operation, std::string(name) + " is null, and " + std::to_string(count) +
                          " elements are to be in it");
  }
}

template <typename Pointer>
void check_chunks(Operation operation, std::span<Pointer const> chunks,
                  std::span<const std::int64_t> counts, int size, const char* name) {
  if (std::ssize(chunks) != size || std::ssize(counts) != size) {
    refuse(operation, "there are " + std::to_string(chunks.size()) + " buffers in `" + name +
                          "` and " + std::to_string(counts.size()) + " counts; a group of " +
                          std::to_string(size) + " ranks needs one of each a rank");
  }
  for (int rank = 0; rank < size; ++rank) {
    check_count(operation, counts[rank]);
    check_memory(operation, chunks[rank], counts[rank], name);
  }
}

std::int64_t total(std::span<const std::int64_t> counts) {
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) sum += count;
  return sum;
}

// Exact chunks are cut at whole cache lines of every type; no result depends on it.
constexpr std::int64_t kExactBlock = 64;

}  // namespace

class Communicator::Impl {
 public:
  Impl(std::unique_ptr<Transport> transport, const Options& options)
      : transport_(std::move(transport)), options_(options), codec_(options.format) {
    options_.validate();
  }

  ~Impl() {
    abort("the group was destroyed");
    std::unique_lock lock(state_mutex_);
    callers_gone_.wait(lock, [&] { return callers_ == 0; });
  }

  const Options& options() const { return options_; }
  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }

  /// What every call says of itself; the caller adds what is its own.
  CallLabel label(Operation operation, DataType type, ReduceOp op, std::int64_t count,
                  const CallOptions& call) const {
    CallLabel label;
    label.operation = operation;
    label.type = type;
    label.reduce_op = op;
    label.count = count;
    label.factor = op == ReduceOp::kPremulSum ? call.factor : 1.0f;
    label.format = options_.format;
    label.segment_numel = options_.segment_numel;
    return label;
  }

  /// Runs a collective that make(transport, exchange, block of the plan) builds, quantized or exact
  /// as why_exact() says, and counts it.
  template <typename Make>
  void run(CallLabel label, const CallOptions& call, Make&& make) {
    const ExactReason reason =
        why_exact(label.operation, label.type, label.reduce_op, label.count, size(), options_);
    label.quantized = reason == ExactReason::kNone;
    OperationStats counters;
    take_turn([&] {
      const Stopwatch stopwatch(counters.total_seconds);
      label.call = calls_;
      const std::unique_ptr<SegmentExchange> exchange = make_exchange(label, counters);
      const std::int64_t block = label.quantized ? options_.format.block : kExactBlock;
      const std::unique_ptr<Collective> collective = make(*transport_, *exchange, block);
      ++calls_;
      run_call(*transport_, *collective, label, timeout(call), counters.wait_seconds);
    });
    counters.elements = label.count;
    (label.quantized ? counters.quantized_calls : counters.exact_calls) = 1;
    if (!label.quantized) counters.exact_by_reason[static_cast<std::size_t>(reason)] = 1;
    add(label.operation, counters);
  }

  void check_call(CallLabel label, const CallOptions& call) {
    take_turn([&] {
      label.call = calls_++;
      LabelCheck check(*transport_);
      double wait_seconds = 0;
      run_call(*transport_, check, label, timeout(call), wait_seconds);
    });
  }

  void add(Operation operation, const OperationStats& more) {
    const std::lock_guard lock(state_mutex_);
    OperationStats& sum = of(stats_, operation);
    sum.quantized_calls += more.quantized_calls;
    sum.exact_calls += more.exact_calls;
    for (int i = 0; i < kExactReasonCount; ++i) sum.exact_by_reason[i] += more.exact_by_reason[i];
    sum.elements += more.elements;
    sum.wire_bytes += more.wire_bytes;
    sum.exact_bytes += more.exact_bytes;
    sum.encode_seconds += more.encode_seconds;
    sum.sum_seconds += more.sum_seconds;
    sum.decode_seconds += more.decode_seconds;
    sum.wait_seconds += more.wait_seconds;
    sum.total_seconds += more.total_seconds;
  }

  Stats stats() const {
    const std::lock_guard lock(state_mutex_);
    return stats_;
  }

  void reset_stats() {
    const std::lock_guard lock(state_mutex_);
    stats_ = {};
  }

  std::string describe() const {
    std::string quantized;
    for (const Operation operation :
         {Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather}) {
      if (!options_.quantizes(operation)) continue;
      quantized += (quantized.empty() ? "" : ", ") + std::string(to_string(operation));
    }
    const BlockFormat& format = options_.format;
    std::string bits = std::to_string(format.bits_per_element());
    bits.erase(bits.find_last_not_of('0') + 1);
    return "agoqcomm " + std::string(version()) + ", rank " + std::to_string(rank()) + " of " +
           std::to_string(size()) + ", transport " + std::string(transport_->name()) + "\n" +
           "format " + format.name() + " (" + bits + " bits an element), " +
           (options_.stochastic_rounding ? "stochastic rounding" : "rounding half to even") +
           ", CPU kernels " + std::string(to_string(codec_.isa())) + "\n" +
           "quantized: " + (quantized.empty() ? "nothing" : quantized) + "; from " +
           std::to_string(options_.min_numel) + " elements up; segments of " +
           std::to_string(options_.segment_numel) + " elements\n" + "timeout " +
           std::to_string(options_.timeout.count()) + " ms\n";
  }

  void abort(const std::string& reason) noexcept {
    try {
      fail("it was aborted: " + reason);
    } catch (...) {
      // Out of memory for the words: the transport still ends the call.
      transport_->abort(reason);
    }
  }

 private:
  /// Runs `call` when its turn comes, and marks the group failed where it throws.
  template <typename Call>
  void take_turn(Call&& call) {
    struct Caller {
      explicit Caller(Impl& owner) : impl(owner) {
        const std::lock_guard lock(impl.state_mutex_);
        ++impl.callers_;
      }
      ~Caller() {
        const std::lock_guard lock(impl.state_mutex_);
        if (--impl.callers_ == 0) impl.callers_gone_.notify_all();
      }
      Impl& impl;
    };
    const Caller caller(*this);
    const std::lock_guard turn(call_mutex_);
    throw_if_failed();
    try {
      call();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalidArgument) fail(error.what());
      throw;
    } catch (const std::bad_alloc&) {
      const char* words = "the machine is out of memory: lower Options::segment_numel";
      fail(words);
      throw Error(ErrorCode::kSystem, words);
    }
  }

  void throw_if_failed() const {
    const std::lock_guard lock(state_mutex_);
    if (failure_.empty()) return;
    throw Error(ErrorCode::kAborted,
                "this group has failed and must be made anew; the first failure was: " + failure_);
  }

  void fail(const std::string& words) {
    {
      const std::lock_guard lock(state_mutex_);
      if (failure_.empty()) failure_ = words;
    }
    transport_->abort(words);
  }

  std::chrono::milliseconds timeout(const CallOptions& call) const {
    return call.timeout.value_or(options_.timeout);
  }

  std::unique_ptr<SegmentExchange> make_exchange(const CallLabel& label, OperationStats& counters) {
    if (!label.quantized) {
      return std::make_unique<ExactExchange>(*transport_, counters, label.type, label.reduce_op,
                                             label.factor);
    }
    const float factor =
        label.reduce_op == ReduceOp::kAvg ? 1.0f / static_cast<float>(size()) : label.factor;
    Rounding rounding;
    rounding.stochastic = options_.stochastic_rounding;
    rounding.seed = options_.seed;
    rounding.call = static_cast<std::uint32_t>(label.call);
    rounding.rank = static_cast<std::uint32_t>(rank());
    return std::make_unique<QuantizedExchange>(*transport_, counters, codec_, label.type, factor,
                                               rounding);
  }

  const std::unique_ptr<Transport> transport_;
  const Options options_;
  const Codec codec_;

  std::mutex call_mutex_;  // Held by the running call; taken before state_mutex_.
  std::uint64_t calls_ = 0;

  mutable std::mutex state_mutex_;
  std::condition_variable callers_gone_;
  int callers_ = 0;
  std::string failure_;  // The first failure's words; empty while there is none.
  Stats stats_{};
};

Communicator::Communicator(std::unique_ptr<Transport> transport, const Options& options) {
  if (transport == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "Communicator: the transport is null; make one, e.g. with make_inproc_group()");
  }
  options.validate();
  impl_ = std::make_unique<Impl>(std::move(transport), options);
}

Communicator::~Communicator() = default;

int Communicator::rank() const { return impl_->rank(); }
int Communicator::size() const { return impl_->size(); }
const Options& Communicator::options() const { return impl_->options(); }

void Communicator::all_reduce(const void* in, void* out, std::int64_t count, DataType type,
                              ReduceOp op, const CallOptions& call) {
  constexpr Operation kOperation = Operation::kAllReduce;
  check_count(kOperation, count);
  check_memory(kOperation, in, count, "in");
  check_memory(kOperation, out, count, "out");
  check_reducible(type, op);
  impl_->run(impl_->label(kOperation, type, op, count, call), call,
             [&](Transport& transport, SegmentExchange& exchange, std::int64_t block) {
               const ChunkPlan plan =
                   ChunkPlan::balanced(count, size(), block, options().segment_numel);
               return std::make_unique<AllReduce>(transport, exchange, plan, in, out);
             });
}

void Communicator::reduce_scatter(std::span<const void* const> in,
                                  std::span<const std::int64_t> counts, void* out, DataType type,
                                  ReduceOp op, const CallOptions& call) {
  constexpr Operation kOperation = Operation::kReduceScatter;
  check_chunks(kOperation, in, counts, size(), "in");
  check_memory(kOperation, out, counts[rank()], "out");
  check_reducible(type, op);
  CallLabel label = impl_->label(kOperation, type, op, total(counts), call);
  label.counts_digest = digest(counts);
  impl_->run(label, call, [&](Transport& transport, SegmentExchange& exchange, std::int64_t block) {
    const ChunkPlan plan = ChunkPlan::given(counts, block, options().segment_numel);
    return std::make_unique<ReduceScatter>(transport, exchange, plan, in, out);
  });
}

void Communicator::all_gather(const void* in, std::span<void* const> out,
                              std::span<const std::int64_t> counts, DataType type,
                              const CallOptions& call) {
  constexpr Operation kOperation = Operation::kAllGather;
  check_chunks(kOperation, out, counts, size(), "out");
  check_memory(kOperation, in, counts[rank()], "in");
  CallLabel label = impl_->label(kOperation, type, ReduceOp::kNone, total(counts), call);
  label.counts_digest = digest(counts);
  impl_->run(label, call, [&](Transport& transport, SegmentExchange& exchange, std::int64_t block) {
    const ChunkPlan plan = ChunkPlan::given(counts, block, options().segment_numel);
    return std::make_unique<AllGather>(transport, exchange, plan, in, out);
  });
}

void Communicator::check_call(Operation operation, DataType type, ReduceOp op, std::int64_t count,
                              int root, const CallOptions& call) {
  check_count(operation, count);
  CallLabel label = impl_->label(operation, type, op, count, call);
  label.root = root;
  impl_->check_call(label, call);
}

void Communicator::record_exact(Operation operation, ExactReason reason, std::int64_t elements,
                                std::int64_t wire_bytes, double seconds) {
  OperationStats counters;
  counters.exact_calls = 1;
  counters.exact_by_reason[static_cast<std::size_t>(reason)] = 1;
  counters.elements = elements;
  counters.wire_bytes = wire_bytes;
  counters.exact_bytes = wire_bytes;
  counters.total_seconds = seconds;
  impl_->add(operation, counters);
}

Stats Communicator::stats() const { return impl_->stats(); }
void Communicator::reset_stats() { impl_->reset_stats(); }
std::string Communicator::describe() const { return impl_->describe(); }
void Communicator::abort(const std::string& reason) noexcept { impl_->abort(reason); }

}  // namespace agoq
