// The collectives of matrices of rows.
#include <vector>

#include "agoqcomm/communicator.h"
#include "call_arguments.h"
#include "collective/exact_reduce.h"
#include "communicator_impl.h"
#include "communicator_row_arguments.h"

namespace agoq {
namespace {

/// Also tells calls apart that have as many elements in rows of another width.
std::uint64_t digest_of(std::span<const std::int64_t> rows, std::int64_t width) {
  std::vector<std::int64_t> all(rows.begin(), rows.end());
  all.push_back(width);
  return digest(all);
}

}  // namespace

void Communicator::reduce_scatter_rows(std::span<const void* const> in,
                                       std::span<const std::int64_t> rows, std::int64_t width,
                                       void* out, DataType type, ReduceOp op,
                                       const RowEpilogue& epilogue, const CallOptions& call) {
  constexpr Operation kOperation = Operation::kReduceScatter;
  const std::vector<std::int64_t> counts = counts_of_rows(kOperation, rows, width, size());
  check_chunks(kOperation, in, counts, size(), "in");
  check_memory(kOperation, out, counts[rank()], "out");
  check_reducible(type, op);
  RowsOfCall of = rows_of(rows, width, rank());
  if (!epilogue.empty()) impl_->row_codec().check(type, {of.rows, width}, out, epilogue);
  of.epilogue = epilogue;
  CallLabel label = impl_->label(kOperation, type, op, total(counts), call);
  label.counts_digest = digest_of(rows, width);
  impl_->reduce_chunks(label, in, counts, out, call, &of);
}

void Communicator::all_gather_rows(const void* in, std::span<void* const> out,
                                   std::span<const std::int64_t> rows, std::int64_t width,
                                   DataType type, const CallOptions& call) {
  constexpr Operation kOperation = Operation::kAllGather;
  const std::vector<std::int64_t> counts = counts_of_rows(kOperation, rows, width, size());
  check_chunks(kOperation, as_const(out), counts, size(), "out");
  check_memory(kOperation, in, counts[rank()], "in");
  const RowsOfCall of = rows_of(rows, width, rank());
  CallLabel label = impl_->label(kOperation, type, ReduceOp::kNone, total(counts), call);
  label.counts_digest = digest_of(rows, width);
  impl_->gather_chunks(label, in, out, counts, call, &of);
}

void Communicator::all_gather_encoded_rows(const std::byte* in, std::span<void* const> out,
                                           std::span<const std::int64_t> rows, std::int64_t width,
                                           DataType type, const CallOptions& call) {
  constexpr Operation kOperation = Operation::kAllGather;
  const std::vector<std::int64_t> counts = counts_of_rows(kOperation, rows, width, size());
  check_chunks(kOperation, as_const(out), counts, size(), "out");
  check_memory(kOperation, in, counts[rank()], "in");
  check_decoded_type(type);
  RowsOfCall of = rows_of(rows, width, rank());
  of.encoded = encoded_or_nothing(in);
  CallLabel label = impl_->label(kOperation, type, ReduceOp::kNone, total(counts), call);
  label.counts_digest = digest_of(rows, width);
  // Where numbers would be read from; encoded rows are sent in their place.
  const void* unread = out[rank()];
  impl_->gather_chunks(label, unread, out, counts, call, &of);
}

void Communicator::finish_rows(const void* values, DataType type, RowShape shape, void* out,
                               const RowEpilogue& epilogue) const {
  impl_->row_codec().apply(values, type, shape, out, epilogue);
}

}  // namespace agoq
