// The collectives of matrices of rows.
#include <numeric>
#include <vector>

#include "agoqcomm/communicator.h"
#include "agoqcomm/error.h"
#include "call_arguments.h"
#include "collective/exact_reduce.h"
#include "communicator_impl.h"

namespace agoq {
namespace {

/// Elements of each rank's rows. Throws where the numbers make no matrix.
std::vector<std::int64_t> counts_of(Operation operation, std::span<const std::int64_t> rows,
                                    std::int64_t width, int size) {
  check_counts(operation, rows, size);
  std::vector<std::int64_t> counts;
  for (const std::int64_t of_rank : rows) counts.push_back(of_rank * width);
  return counts;
}

/// Also tells calls apart that have as many elements in rows of another width.
std::uint64_t digest_of(std::span<const std::int64_t> rows, std::int64_t width) {
  std::vector<std::int64_t> all(rows.begin(), rows.end());
  all.push_back(width);
  return digest(all);
}

RowsOfCall rows_of(std::span<const std::int64_t> rows, std::int64_t width, int rank) {
  RowsOfCall result;
  result.width = width;
  result.first_row = std::accumulate(rows.begin(), rows.begin() + rank, std::int64_t{0});
  result.rows = rows[rank];
  return result;
}

void check_width(Operation operation, std::int64_t width) {
  if (width >= 1 && width <= kMaxRowWidth) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(to_string(operation)) + ": a row has " + std::to_string(width) +
                  " elements; it must have 1 to " + std::to_string(kMaxRowWidth));
}

}  // namespace

void Communicator::reduce_scatter_rows(std::span<const void* const> in,
                                       std::span<const std::int64_t> rows, std::int64_t width,
                                       void* out, DataType type, ReduceOp op,
                                       const RowEpilogue& epilogue, const CallOptions& call) {
  constexpr Operation kOperation = Operation::kReduceScatter;
  check_width(kOperation, width);
  const std::vector<std::int64_t> counts = counts_of(kOperation, rows, width, size());
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
  check_width(kOperation, width);
  const std::vector<std::int64_t> counts = counts_of(kOperation, rows, width, size());
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
  check_width(kOperation, width);
  const std::vector<std::int64_t> counts = counts_of(kOperation, rows, width, size());
  check_chunks(kOperation, as_const(out), counts, size(), "out");
  check_memory(kOperation, in, counts[rank()], "in");
  if (!is_encodable(type)) {
    throw Error(ErrorCode::kInvalidArgument,
                "all_gather: encoded rows decode to float32, bfloat16 or float16, not to " +
                    std::string(to_string(type)));
  }
  RowsOfCall of = rows_of(rows, width, rank());
  // A rank without rows has no bytes to show for it.
  static constexpr std::byte kNothing{};
  of.encoded = in == nullptr ? &kNothing : in;
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
