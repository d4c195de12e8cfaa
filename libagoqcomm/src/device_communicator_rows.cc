// The collectives of matrices of rows on device memory.
#include <vector>

#include "call_arguments.h"
#include "codec/argument_checks.h"
#include "codec/row_checks.h"
#include "collective/device_collectives.h"
#include "collective/exact_reduce.h"
#include "communicator_row_arguments.h"
#include "device_communicator_impl.h"

namespace agoq {
namespace {

void check_rows(DataType type, RowShape shape, const void* out, const RowEpilogue& epilogue) {
  constexpr auto kFunction = "DeviceCommunicator's epilogue";
  check_type(kFunction, type);
  if (shape.rows == 0) return;
  check_row_epilogue(kFunction, shape, out, epilogue);
  check_alignment(kFunction, epilogue.encoded.data, DeviceRowCodec::kEncodedAlignment);
}

}  // namespace

std::size_t DeviceCommunicator::reduce_scatter_rows_workspace(std::span<const std::int64_t> rows,
                                                              std::int64_t width, DataType type,
                                                              ReduceOp op,
                                                              std::optional<bool> quantize) const {
  constexpr Operation kOperation = Operation::kReduceScatter;
  const auto counts = counts_of_rows(kOperation, rows, width, size());
  const RowsOfCall of = rows_of(rows, width, rank());
  return impl_->workspace({kOperation, type, op, quantize, &of}, impl_->given_rows(counts, width));
}

std::size_t DeviceCommunicator::all_gather_rows_workspace(std::span<const std::int64_t> rows,
                                                          std::int64_t width, DataType type,
                                                          std::optional<bool> quantize) const {
  constexpr Operation kOperation = Operation::kAllGather;
  const auto counts = counts_of_rows(kOperation, rows, width, size());
  const RowsOfCall of = rows_of(rows, width, rank());
  return impl_->workspace({kOperation, type, ReduceOp::kNone, quantize, &of},
                          impl_->given_rows(counts, width));
}

std::size_t DeviceCommunicator::all_gather_encoded_rows_workspace(
    std::span<const std::int64_t> rows, std::int64_t width) const {
  constexpr Operation kOperation = Operation::kAllGather;
  const auto counts = counts_of_rows(kOperation, rows, width, size());
  RowsOfCall of = rows_of(rows, width, rank());
  of.encoded = encoded_or_nothing(nullptr);
  return impl_->workspace({kOperation, DataType::kFloat32, ReduceOp::kNone, true, &of},
                          impl_->given_rows(counts, width));
}

void DeviceCommunicator::reduce_scatter_rows(std::span<const void* const> in,
                                             std::span<const std::int64_t> rows, std::int64_t width,
                                             void* out, DataType type, ReduceOp op,
                                             const RowEpilogue& epilogue, const DeviceCall& call) {
  constexpr Operation kOperation = Operation::kReduceScatter;
  const DeviceRowCodec& codec = impl_->row_codec();
  const auto counts = counts_of_rows(kOperation, rows, width, size());
  check_chunks(kOperation, in, counts, size(), "in");
  check_memory(kOperation, out, counts[rank()], "out");
  check_reducible(type, op);
  RowsOfCall of = rows_of(rows, width, rank());
  if (!epilogue.empty()) check_rows(type, {of.rows, width}, out, epilogue);
  of.epilogue = epilogue;
  impl_->run(
      {kOperation, type, op, call.quantize, &of}, impl_->given_rows(counts, width), call,
      [&](DeviceSteps& steps) { device_reduce_scatter(steps, in, in[rank()], out); },
      [&](DeviceSteps&) {
        if (epilogue.empty())
          return impl_->copy(out, in[rank()], counts[rank()], type, call.stream);
        if (of.rows == 0) return;
        codec.apply(in[rank()], type, {of.rows, width}, out, call.stream, epilogue);
      });
}

void DeviceCommunicator::all_gather_rows(const void* in, std::span<void* const> out,
                                         std::span<const std::int64_t> rows, std::int64_t width,
                                         DataType type, const DeviceCall& call) {
  constexpr Operation kOperation = Operation::kAllGather;
  static_cast<void>(impl_->row_codec());
  const auto counts = counts_of_rows(kOperation, rows, width, size());
  check_chunks(kOperation, as_const(out), counts, size(), "out");
  check_memory(kOperation, in, counts[rank()], "in");
  const RowsOfCall of = rows_of(rows, width, rank());
  impl_->run(
      {kOperation, type, ReduceOp::kNone, call.quantize, &of}, impl_->given_rows(counts, width),
      call, [&](DeviceSteps& steps) { device_all_gather(steps, in, out); },
      [&](DeviceSteps& steps) {
        if (size() > 1) device_exact_all_gather(steps, in, out);
        impl_->copy(out[rank()], in, counts[rank()], type, call.stream);
      });
}

void DeviceCommunicator::all_gather_encoded_rows(const std::byte* in, std::span<void* const> out,
                                                 std::span<const std::int64_t> rows,
                                                 std::int64_t width, DataType type,
                                                 const DeviceCall& call) {
  constexpr Operation kOperation = Operation::kAllGather;
  static_cast<void>(impl_->row_codec());
  const auto counts = counts_of_rows(kOperation, rows, width, size());
  check_chunks(kOperation, as_const(out), counts, size(), "out");
  check_memory(kOperation, in, counts[rank()], "in");
  check_decoded_type(type);
  RowsOfCall of = rows_of(rows, width, rank());
  of.encoded = encoded_or_nothing(in);
  // Where numbers would be read from; encoded rows are sent in their place.
  const void* unread = out[rank()];
  const auto gather = [&](DeviceSteps& steps) { device_all_gather(steps, unread, out); };
  impl_->run({kOperation, type, ReduceOp::kNone, true, &of}, impl_->given_rows(counts, width), call,
             gather, gather);
}

void DeviceCommunicator::finish_rows(const void* values, DataType type, RowShape shape, void* out,
                                     const RowEpilogue& epilogue, void* stream) const {
  if (epilogue.draws()) impl_->check_draws(stream);
  impl_->row_codec().apply(values, type, shape, out, stream, epilogue);
}

}  // namespace agoq
