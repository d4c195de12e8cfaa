#include "agoqcomm/communicator.h"

#include <utility>
#include <vector>

#include "agoqcomm/error.h"
#include "call_arguments.h"
#include "collective/all_reduce.h"
#include "collective/call_label.h"
#include "collective/chunk_plan.h"
#include "collective/exact_reduce.h"
#include "collective/label_check.h"
#include "collective/one_shot_all_reduce.h"
#include "collective/two_level.h"
#include "communicator_impl.h"

namespace agoq {

Communicator::Communicator(std::unique_ptr<Transport> transport, const Options& options,
                           std::optional<Topology> topology) {
  if (transport == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "Communicator: the transport is null; make one, e.g. with make_inproc_group()");
  }
  options.validate();
  if (!topology) topology = Topology::one_node(transport->size());
  if (topology->size() != transport->size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "Communicator: the topology has " + std::to_string(topology->size()) +
                    " ranks and the transport " + std::to_string(transport->size()) +
                    "; state a node for each rank");
  }
  impl_ = std::make_unique<Impl>(std::move(transport), options, *std::move(topology));
}

Communicator::~Communicator() = default;

int Communicator::rank() const { return impl_->rank(); }
int Communicator::size() const { return impl_->size(); }
const Options& Communicator::options() const { return impl_->options(); }
const Topology& Communicator::topology() const { return impl_->topology(); }

void Communicator::all_reduce(const void* in, void* out, std::int64_t count, DataType type,
                              ReduceOp op, const CallOptions& call) {
  constexpr Operation kOperation = Operation::kAllReduce;
  check_count(kOperation, count);
  check_memory(kOperation, in, count, "in");
  check_memory(kOperation, out, count, "out");
  check_reducible(type, op);
  impl_->run(
      impl_->label(kOperation, type, op, count, call), call,
      [&](Transport& transport, SegmentExchange& exchange,
          const CallLabel& label) -> std::unique_ptr<Collective> {
        if (!label.quantized && !label.two_level &&
            is_one_shot(transport.name(), size(), exchange.value_bytes(count))) {
          return std::make_unique<OneShotAllReduce>(transport, exchange, count, in, out);
        }
        if (label.two_level) {
          return TwoLevel::all_reduce(transport, exchange,
                                      TwoLevelPlan::balanced(count, topology(), impl_->block(label),
                                                             impl_->segment_numel(label)),
                                      in, out);
        }
        const ChunkPlan plan =
            ChunkPlan::balanced(count, size(), impl_->block(label), impl_->segment_numel(label));
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
  impl_->reduce_chunks(label, in, counts, out, call);
}

void Communicator::all_gather(const void* in, std::span<void* const> out,
                              std::span<const std::int64_t> counts, DataType type,
                              const CallOptions& call) {
  constexpr Operation kOperation = Operation::kAllGather;
  check_chunks(kOperation, as_const(out), counts, size(), "out");
  check_memory(kOperation, in, counts[rank()], "in");
  CallLabel label = impl_->label(kOperation, type, ReduceOp::kNone, total(counts), call);
  label.counts_digest = digest(counts);
  impl_->gather_chunks(label, in, out, counts, call);
}

void Communicator::broadcast(void* data, std::int64_t count, DataType type, int root,
                             const CallOptions& call) {
  constexpr Operation kOperation = Operation::kBroadcast;
  check_root(kOperation, root, size());
  check_count(kOperation, count);
  check_memory(kOperation, data, count, "data");
  CallLabel label = impl_->label(kOperation, type, ReduceOp::kNone, count, call);
  label.root = root;
  impl_->broadcast(label, data, call);
}

void Communicator::reduce(const void* in, void* out, std::int64_t count, DataType type, ReduceOp op,
                          int root, const CallOptions& call) {
  constexpr Operation kOperation = Operation::kReduce;
  check_root(kOperation, root, size());
  check_count(kOperation, count);
  check_memory(kOperation, in, count, "in");
  if (rank() == root) check_memory(kOperation, out, count, "out");
  check_reducible(type, op);
  CallLabel label = impl_->label(kOperation, type, op, count, call);
  label.root = root;
  // A reduce-scatter of which everything belongs to the root.
  std::vector<std::int64_t> counts(size());
  std::vector<const void*> chunks(size());
  counts[root] = count;
  chunks[root] = in;
  impl_->reduce_chunks(label, chunks, counts, rank() == root ? out : nullptr, call);
}

void Communicator::gather(const void* in, std::span<void* const> out,
                          std::span<const std::int64_t> counts, DataType type, int root,
                          const CallOptions& call) {
  constexpr Operation kOperation = Operation::kGather;
  check_root(kOperation, root, size());
  check_counts(kOperation, counts, size());
  check_memory(kOperation, in, counts[rank()], "in");
  const bool is_root = rank() == root;
  if (is_root) check_chunks(kOperation, as_const(out), counts, size(), "out");
  CallLabel label = impl_->label(kOperation, type, ReduceOp::kNone, total(counts), call);
  label.root = root;
  label.counts_digest = digest(counts);
  // An all-to-all in which every rank sends to the root alone.
  const std::vector<std::int64_t> nothing(size());
  const std::vector<void*> nowhere(size());
  std::vector<std::int64_t> in_counts(size());
  std::vector<const void*> chunks(size());
  in_counts[root] = counts[rank()];
  chunks[root] = in;
  impl_->exchange_chunks(label, label.count,
                         {chunks, in_counts, is_root ? out : nowhere, is_root ? counts : nothing},
                         call);
}

void Communicator::scatter(std::span<const void* const> in, std::span<const std::int64_t> counts,
                           void* out, DataType type, int root, const CallOptions& call) {
  constexpr Operation kOperation = Operation::kScatter;
  check_root(kOperation, root, size());
  check_counts(kOperation, counts, size());
  check_memory(kOperation, out, counts[rank()], "out");
  const bool is_root = rank() == root;
  if (is_root) check_chunks(kOperation, in, counts, size(), "in");
  CallLabel label = impl_->label(kOperation, type, ReduceOp::kNone, total(counts), call);
  label.root = root;
  label.counts_digest = digest(counts);
  // An all-to-all in which every rank receives from the root alone.
  const std::vector<std::int64_t> nothing(size());
  const std::vector<const void*> nowhere(size());
  std::vector<std::int64_t> out_counts(size());
  std::vector<void*> chunks(size());
  out_counts[root] = counts[rank()];
  chunks[root] = out;
  impl_->exchange_chunks(label, label.count,
                         {is_root ? in : nowhere, is_root ? counts : nothing, chunks, out_counts},
                         call);
}

void Communicator::all_to_all(std::span<const void* const> in,
                              std::span<const std::int64_t> in_counts, std::span<void* const> out,
                              std::span<const std::int64_t> out_counts, DataType type,
                              const CallOptions& call) {
  constexpr Operation kOperation = Operation::kAllToAll;
  check_chunks(kOperation, in, in_counts, size(), "in");
  check_chunks(kOperation, as_const(out), out_counts, size(), "out");
  check_own_counts(kOperation, in_counts[rank()], out_counts[rank()]);
  const CallLabel label = impl_->label(kOperation, type, ReduceOp::kNone, 0, call);
  impl_->exchange_chunks(label, total(in_counts), {in, in_counts, out, out_counts}, call);
}

void Communicator::send(const void* data, std::int64_t count, DataType type, int to,
                        const CallOptions& call) {
  constexpr Operation kOperation = Operation::kSend;
  check_peer(kOperation, to, rank(), size());
  check_count(kOperation, count);
  check_memory(kOperation, data, count, "data");
  impl_->move_to_peer(kOperation, const_cast<void*>(data), count, type, to, call);
}

void Communicator::receive(void* data, std::int64_t count, DataType type, int from,
                           const CallOptions& call) {
  constexpr Operation kOperation = Operation::kReceive;
  check_peer(kOperation, from, rank(), size());
  check_count(kOperation, count);
  check_memory(kOperation, data, count, "data");
  impl_->move_to_peer(kOperation, data, count, type, from, call);
}

void Communicator::barrier(const CallOptions& call) {
  impl_->run(impl_->label(Operation::kBarrier, DataType::kOther, ReduceOp::kNone, 0, call), call,
             [](Transport& transport, SegmentExchange&, const CallLabel&) {
               return std::make_unique<LabelCheck>(transport);
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
