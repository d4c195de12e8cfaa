// What stands behind a Communicator: turns, failure, counters, and the run of one collective.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agoqcomm/codec.h"
#include "agoqcomm/communicator.h"
#include "agoqcomm/error.h"
#include "agoqcomm/row_codec.h"
#include "collective/all_to_all.h"
#include "collective/call_driver.h"
#include "collective/call_label.h"
#include "collective/collective.h"
#include "collective/row_exchange.h"
#include "collective/segment_exchange.h"
#include "collective/stopwatch.h"
#include "collective/two_level_plan.h"

namespace agoq {

/// Thread-safe as Communicator is.
class Communicator::Impl {
 public:
  Impl(std::unique_ptr<Transport> transport, const Options& options, Topology topology);
  ~Impl();

  const Options& options() const { return options_; }
  const Topology& topology() const { return topology_; }
  const RowCodec& row_codec() const { return row_codec_; }
  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }

  /// What every call says of itself; the caller adds what is its own.
  CallLabel label(Operation operation, DataType type, ReduceOp op, std::int64_t count,
                  const CallOptions& call) const;

  /// What a chunk plan never cuts through; `rows` where the call has rows.
  std::int64_t block(const CallLabel& label, const RowsOfCall* rows = nullptr) const {
    // Exact chunks are cut at whole cache lines of every type; no result depends on it.
    constexpr std::int64_t kExactBlock = 64;
    if (rows != nullptr) return rows->width;
    return label.quantized ? options_.format.block : kExactBlock;
  }
  /// Elements of a segment. An exact one has as many bytes as one of int8 codes: how long
  /// messages should be depends on caches and sockets, not on what is in them.
  std::int64_t segment_numel(const CallLabel& label) const {
    const std::int64_t numel = options_.segment_numel;
    if (label.quantized) return numel;
    return std::max<std::int64_t>(1, numel / static_cast<std::int64_t>(size_of(label.type)));
  }

  TwoLevelPlan two_level_plan(const CallLabel& label, std::span<const std::int64_t> counts,
                              const RowsOfCall* rows = nullptr) const {
    return TwoLevelPlan::given(counts, topology_, block(label, rows), segment_numel(label));
  }

  /// Runs a collective that make(transport, exchange, label) builds, quantized or exact as
  /// why_exact() says, and counts it with label.count elements.
  template <typename Make>
  void run(const CallLabel& label, const CallOptions& call, Make&& make) {
    run(label, label.count, call, std::forward<Make>(make));
  }
  /// The same where the label cannot say how many `elements` this rank has, or where there are
  /// `rows`.
  template <typename Make>
  void run(const CallLabel& label, std::int64_t elements, const CallOptions& call, Make&& make,
           const RowsOfCall* rows = nullptr) {
    run(label, label.operation, elements, {}, call, std::forward<Make>(make), rows);
  }
  /// The same, counted as `counted`, with `peer` alone where there is one.
  template <typename Make>
  void run(CallLabel label, Operation counted, std::int64_t elements, std::optional<int> peer,
           const CallOptions& call, Make&& make, const RowsOfCall* rows = nullptr) {
    const ExactReason reason = reason_of(label, call, rows);
    label.quantized = reason == ExactReason::kNone;
    choose_algorithm(label);
    OperationStats counters;
    take_turn([&] {
      const Stopwatch stopwatch(counters.total_seconds);
      std::uint64_t& calls = peer ? pair_calls_[*peer] : calls_;
      label.call = calls;
      const std::unique_ptr<SegmentExchange> exchange = make_exchange(label, counters, rows);
      const std::unique_ptr<Collective> collective = make(*transport_, *exchange, label);
      ++calls;
      run_call(*transport_, *collective, label, peer, timeout(call), counters.wait_seconds);
    });
    counters.elements = elements;
    (label.quantized ? counters.quantized_calls : counters.exact_calls) = 1;
    if (!label.quantized) counters.exact_by_reason[static_cast<std::size_t>(reason)] = 1;
    add(counted, counters);
  }

  // The three ways in which chunks move; each operation is one of them.
  void reduce_chunks(const CallLabel& label, std::span<const void* const> in,
                     std::span<const std::int64_t> counts, void* out, const CallOptions& call,
                     const RowsOfCall* rows = nullptr);
  void gather_chunks(const CallLabel& label, const void* in, std::span<void* const> out,
                     std::span<const std::int64_t> counts, const CallOptions& call,
                     const RowsOfCall* rows = nullptr);
  void exchange_chunks(const CallLabel& label, std::int64_t elements, const PairChunks& chunks,
                       const CallOptions& call);

  void broadcast(const CallLabel& label, void* data, const CallOptions& call);
  /// `operation` is kSend or kReceive.
  void move_to_peer(Operation operation, void* data, std::int64_t count, DataType type, int peer,
                    const CallOptions& call);
  void check_call(CallLabel label, const CallOptions& call);
  void add(Operation operation, const OperationStats& more);
  Stats stats() const;
  void reset_stats();
  std::string describe() const;
  std::string describe_algorithm() const;
  void abort(const std::string& reason) noexcept;

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

  void throw_if_failed() const;
  void fail(const std::string& words);

  /// Sets what the label says of two levels.
  void choose_algorithm(CallLabel& label) const;
  std::chrono::milliseconds timeout(const CallOptions& call) const {
    return call.timeout.value_or(options_.timeout);
  }
  ExactReason reason_of(const CallLabel& label, const CallOptions& call,
                        const RowsOfCall* rows) const;
  std::unique_ptr<SegmentExchange> make_exchange(const CallLabel& label, OperationStats& counters,
                                                 const RowsOfCall* rows);

  const std::unique_ptr<Transport> transport_;
  const Options options_;
  const Topology topology_;
  const Codec codec_;
  const RowCodec row_codec_;

  std::mutex call_mutex_;  // Held by the running call; taken before state_mutex_.
  std::uint64_t calls_ = 0;
  std::vector<std::uint64_t> pair_calls_;  // Sends and receives, by peer.

  mutable std::mutex state_mutex_;
  std::condition_variable callers_gone_;
  int callers_ = 0;
  std::string failure_;  // The first failure's words; empty while there is none.
  Stats stats_{};
};

}  // namespace agoq
