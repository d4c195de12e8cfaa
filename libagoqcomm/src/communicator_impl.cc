#include "communicator_impl.h"

#include "agoqcomm/version.h"
#include "call_choice.h"
#include "codec/thread_count.h"
#include "collective/all_gather.h"
#include "collective/chunk_plan.h"
#include "collective/exact_exchange.h"
#include "collective/label_check.h"
#include "collective/quantized_exchange.h"
#include "collective/reduce_scatter.h"
#include "collective/relayed_broadcast.h"
#include "collective/two_level.h"

namespace agoq {
namespace {

// An exact call of fewer bytes waits longer for a second level than for the bytes that it saves: at
// 10 Gbit/s those of 64 KiB take as long as two messages within a node.
constexpr std::int64_t kLeastExactBytes = 64 << 10;

std::int64_t least_exact_count(DataType type) {
  return kLeastExactBytes / static_cast<std::int64_t>(size_of(type));
}

const Options& validated(const Options& options) {
  options.validate();
  return options;
}

std::string describe_threads(int threads) {
  return threads == 1 ? "" : " on " + std::to_string(threads) + " threads";
}

int ranks_beside(const Transport& transport, const Topology& topology) {
  return static_cast<int>(topology.ranks_of(topology.node_of(transport.rank())).size());
}

}  // namespace

Communicator::Impl::Impl(std::unique_ptr<Transport> transport, const Options& options,
                         Topology topology)
    : transport_(std::move(transport)),
      options_(validated(options)),
      topology_(std::move(topology)),
      codec_(options.format, selected_cpu_isa(),
             codec_thread_count(options.codec_threads, ranks_beside(*transport_, topology_))),
      row_codec_(codec_),
      pair_calls_(transport_->size()) {}

Communicator::Impl::~Impl() {
  abort("the group was destroyed");
  std::unique_lock lock(state_mutex_);
  callers_gone_.wait(lock, [&] { return callers_ == 0; });
}

CallLabel Communicator::Impl::label(Operation operation, DataType type, ReduceOp op,
                                    std::int64_t count, const CallOptions& call) const {
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

void Communicator::Impl::reduce_chunks(const CallLabel& label, std::span<const void* const> in,
                                       std::span<const std::int64_t> counts, void* out,
                                       const CallOptions& call, const RowsOfCall* rows) {
  const auto make = [&](Transport& transport, SegmentExchange& exchange,
                        const CallLabel& running) -> std::unique_ptr<Collective> {
    if (running.two_level) {
      return TwoLevel::reduce_scatter(transport, exchange, two_level_plan(running, counts, rows),
                                      in, out);
    }
    const ChunkPlan plan = ChunkPlan::given(counts, block(running, rows), segment_numel(running));
    return std::make_unique<ReduceScatter>(transport, exchange, plan, in, out);
  };
  run(label, label.count, call, make, rows);
}

void Communicator::Impl::gather_chunks(const CallLabel& label, const void* in,
                                       std::span<void* const> out,
                                       std::span<const std::int64_t> counts,
                                       const CallOptions& call, const RowsOfCall* rows) {
  const auto make = [&](Transport& transport, SegmentExchange& exchange,
                        const CallLabel& running) -> std::unique_ptr<Collective> {
    if (running.two_level) {
      return TwoLevel::all_gather(transport, exchange, two_level_plan(running, counts, rows), in,
                                  out);
    }
    const ChunkPlan plan = ChunkPlan::given(counts, block(running, rows), segment_numel(running));
    return std::make_unique<AllGather>(transport, exchange, plan, in, out);
  };
  run(label, label.count, call, make, rows);
}

void Communicator::Impl::exchange_chunks(const CallLabel& label, std::int64_t elements,
                                         const PairChunks& chunks, const CallOptions& call) {
  run(label, elements, call,
      [&](Transport& transport, SegmentExchange& exchange, const CallLabel& running) {
        return std::make_unique<AllToAll>(transport, exchange, chunks, segment_numel(running));
      });
}

void Communicator::Impl::broadcast(const CallLabel& label, void* data, const CallOptions& call) {
  // An all-gather to which only the root has something to give.
  std::vector<std::int64_t> counts(size());
  std::vector<void*> out(size());
  counts[label.root] = label.count;
  out[label.root] = data;
  const void* const in = rank() == label.root ? data : nullptr;
  run(label, call,
      [&](Transport& transport, SegmentExchange& exchange,
          const CallLabel& running) -> std::unique_ptr<Collective> {
        if (running.two_level) {
          return TwoLevel::all_gather(transport, exchange, two_level_plan(running, counts), in,
                                      out);
        }
        const std::int64_t bytes = exchange.value_bytes(running.count);
        const std::int64_t numel = broadcast_segment_numel(segment_numel(running), bytes);
        if (is_relayed(transport.name(), topology_, bytes)) {
          const ChunkPlan plan = ChunkPlan::balanced(running.count, size(), block(running), numel);
          return std::make_unique<RelayedBroadcast>(transport, exchange, plan, running.root, data);
        }
        const ChunkPlan plan = ChunkPlan::given(counts, block(running), numel);
        return std::make_unique<AllGather>(transport, exchange, plan, in, out);
      });
}

void Communicator::Impl::move_to_peer(Operation operation, void* data, std::int64_t count,
                                      DataType type, int peer, const CallOptions& call) {
  const bool sends = operation == Operation::kSend;
  // Both ends show the same label: the sender's.
  CallLabel shown = label(Operation::kSend, type, ReduceOp::kNone, count, call);
  shown.root = sends ? rank() : peer;
  run(shown, operation, count, peer, call,
      [&](Transport& transport, SegmentExchange& exchange, const CallLabel& running) {
        return std::make_unique<AllToAll>(transport, exchange, peer,
                                          sends ? AllToAll::Way::kOut : AllToAll::Way::kIn, data,
                                          count, segment_numel(running));
      });
}

void Communicator::Impl::check_call(CallLabel label, const CallOptions& call) {
  take_turn([&] {
    label.call = calls_++;
    LabelCheck check(*transport_);
    double wait_seconds = 0;
    run_call(*transport_, check, label, {}, timeout(call), wait_seconds);
  });
}

void Communicator::Impl::add(Operation operation, const OperationStats& more) {
  const std::lock_guard lock(state_mutex_);
  of(stats_, operation) += more;
}

Stats Communicator::Impl::stats() const {
  const std::lock_guard lock(state_mutex_);
  return stats_;
}

void Communicator::Impl::reset_stats() {
  const std::lock_guard lock(state_mutex_);
  stats_ = {};
}

std::string Communicator::Impl::describe() const {
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
         ", CPU kernels " + std::string(to_string(codec_.isa())) +
         describe_threads(codec_.threads()) + "\n" +
         "quantized: " + (quantized.empty() ? "nothing" : quantized) + "; from " +
         std::to_string(options_.min_numel) + " elements up; segments of " +
         std::to_string(options_.segment_numel) + " elements\n" + "topology " +
         topology_.describe() + ", algorithm " + describe_algorithm() + "\n";
}

std::string Communicator::Impl::describe_algorithm() const {
  if (topology_.nodes() == 1) return "flat (all ranks share a node)";
  if (!topology_.is_two_level()) return "flat (every rank has a node of its own)";
  if (options_.algorithm == Algorithm::kFlat) return "flat (by option)";
  if (options_.algorithm == Algorithm::kTwoLevel) return "two_level (by option)";
  return "two_level (several ranks on a node), but flat for exact calls of less than " +
         std::to_string(kLeastExactBytes) + " bytes";
}

void Communicator::Impl::abort(const std::string& reason) noexcept {
  try {
    fail("it was aborted: " + reason);
  } catch (...) {
    // Out of memory for the words: the transport still ends the call.
    transport_->abort(reason);
  }
}

void Communicator::Impl::throw_if_failed() const {
  const std::lock_guard lock(state_mutex_);
  if (failure_.empty()) return;
  throw Error(ErrorCode::kAborted,
              "this group has failed and must be made anew; the first failure was: " + failure_);
}

void Communicator::Impl::fail(const std::string& words) {
  {
    const std::lock_guard lock(state_mutex_);
    if (failure_.empty()) failure_ = words;
  }
  transport_->abort(words);
}

void Communicator::Impl::choose_algorithm(CallLabel& label) const {
  switch (label.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
    case Operation::kAllGather:
    case Operation::kBroadcast:
    case Operation::kReduce:
      break;
    default:
      return;
  }
  if (!topology_.is_two_level() || options_.algorithm == Algorithm::kFlat) return;
  const bool is_small = !label.quantized && label.count < least_exact_count(label.type);
  if (options_.algorithm == Algorithm::kAuto && is_small) return;
  label.two_level = true;
  // Ranks that see another topology than this one must not run the call together.
  std::vector<std::int64_t> seen{static_cast<std::int64_t>(label.counts_digest)};
  for (int rank = 0; rank < size(); ++rank) seen.push_back(topology_.node_of(rank));
  label.counts_digest = digest(seen);
}

ExactReason Communicator::Impl::reason_of(const CallLabel& label, const CallOptions& call,
                                          const RowsOfCall* rows) const {
  // What the caller has encoded cannot be anything else any more.
  if (rows != nullptr && rows->encoded != nullptr) return ExactReason::kNone;
  return why_exact(label.operation, label.type, label.reduce_op, label.count, size(),
                   chosen(options_, call.quantize));
}

std::unique_ptr<SegmentExchange> Communicator::Impl::make_exchange(const CallLabel& label,
                                                                   OperationStats& counters,
                                                                   const RowsOfCall* rows) {
  if (!label.quantized) {
    if (rows != nullptr) {
      return std::make_unique<ExactRowExchange>(*transport_, counters, topology_, row_codec_,
                                                label.type, label.reduce_op, label.factor, *rows);
    }
    return std::make_unique<ExactExchange>(*transport_, counters, topology_, label.type,
                                           label.reduce_op, label.factor);
  }
  const float factor =
      label.reduce_op == ReduceOp::kAvg ? 1.0f / static_cast<float>(size()) : label.factor;
  Rounding rounding;
  rounding.stochastic = options_.stochastic_rounding;
  rounding.seed = options_.seed;
  rounding.call = static_cast<std::uint32_t>(label.call);
  rounding.rank = static_cast<std::uint32_t>(rank());
  const CacheUse results = cache_use_of_results(
      label.operation, label.count * static_cast<std::int64_t>(size_of(label.type)));
  if (rows != nullptr) {
    return std::make_unique<RowExchange>(*transport_, counters, topology_, codec_, row_codec_,
                                         label.type, factor, rounding, results, *rows);
  }
  return std::make_unique<QuantizedExchange>(*transport_, counters, topology_, codec_, label.type,
                                             factor, rounding, results);
}

}  // namespace agoq
