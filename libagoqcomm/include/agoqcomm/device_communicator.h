// DeviceCommunicator: the quantized collectives on device memory, in the order of a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "agoqcomm/device_codec.h"
#include "agoqcomm/device_row_codec.h"
#include "agoqcomm/device_runtime.h"
#include "agoqcomm/device_transport.h"
#include "agoqcomm/export.h"
#include "agoqcomm/options.h"
#include "agoqcomm/row_codec.h"
#include "agoqcomm/stats.h"
#include "agoqcomm/types.h"

namespace agoq {

/// Device memory that a call works in, of the caller's allocator.
struct DeviceWorkspace {
  void* data = nullptr;  ///< Aligned to 256.
  std::size_t bytes = 0;
};

/// Where and with what one call runs.
struct DeviceCall {
  /// The call is done when the work it put on this stream is done. (cudaStream_t; null: default.)
  void* stream = nullptr;
  /// At least workspace_bytes(); free again, and reusable by a later call, in the stream's order.
  DeviceWorkspace workspace;
  /// For ReduceOp::kPremulSum.
  float factor = 1.0f;
  /// As CallOptions::quantize.
  std::optional<bool> quantize = {};
};

/// Thread-safe: calls from several threads are put on their streams one after another, and all
/// ranks must issue them in the same order. No call waits for the device or for other ranks'
/// devices, none allocates device memory, and results are what Communicator's flat algorithm
/// computes from the same numbers, bit for bit.
///
/// Segments of a call overlap: encoding, sums and decoding run on the caller's stream, and what the
/// transport does on one of the communicator's own, tied to it by events at both ends. Where the
/// transport can be captured a call may be captured in a CUDA graph after one call outside of it;
/// replays then read and write the same memory, workspace too. Stochastic rounding is refused under
/// capture with Error(kUnsupported), an epilogue's too, since every replay would repeat the draws.
///
/// Served is what serves() says: calls that why_exact() (options.h) would quantize, or that say so
/// themselves; exact all-gathers; everything in a group of one rank. Sums that must be exact belong
/// to the library that moves the bytes, e.g. NCCL, and throw Error(kUnsupported) here.
///
/// Buffers are device memory of any alignment of the device that was current at construction and is
/// current at the call. Errors: kInvalidArgument before anything is put on a stream. After any
/// other error the group is failed: later calls throw kAborted at once.
class AGOQ_API DeviceCommunicator {
 public:
  /// `runtime` outlives the communicator. `segment_numel`, equal on all ranks, stands in for
  /// Options::segment_numel, which is a CPU's; 0 chooses by the number of ranks. No result depends
  /// on it. `rows` may be null where no call has rows.
  DeviceCommunicator(std::unique_ptr<DeviceTransport> transport, std::unique_ptr<DeviceCodec> codec,
                     DeviceRuntime& runtime, const Options& options, std::int64_t segment_numel = 0,
                     std::unique_ptr<DeviceRowCodec> rows = nullptr);
  /// The work of all calls must be done: synchronize with their streams first.
  ~DeviceCommunicator();
  DeviceCommunicator(const DeviceCommunicator&) = delete;
  DeviceCommunicator& operator=(const DeviceCommunicator&) = delete;

  int rank() const;
  int size() const;
  const Options& options() const;

  /// Whether a call is served here; `count` is what the whole group sees, as for why_exact(), and
  /// `quantize` the call's.
  bool serves(Operation operation, DataType type, ReduceOp op, std::int64_t count,
              std::optional<bool> quantize = {}) const;

  /// Bytes of workspace that a call takes: a few segments a rank, however many elements there are.
  /// 0 for calls that need none. The arguments are those of the calls below.
  std::size_t all_reduce_workspace(std::int64_t count, DataType type, ReduceOp op,
                                   std::optional<bool> quantize = {}) const;
  std::size_t reduce_scatter_workspace(std::span<const std::int64_t> counts, DataType type,
                                       ReduceOp op, std::optional<bool> quantize = {}) const;
  std::size_t all_gather_workspace(std::span<const std::int64_t> counts, DataType type,
                                   std::optional<bool> quantize = {}) const;
  std::size_t reduce_scatter_rows_workspace(std::span<const std::int64_t> rows, std::int64_t width,
                                            DataType type, ReduceOp op,
                                            std::optional<bool> quantize = {}) const;
  std::size_t all_gather_rows_workspace(std::span<const std::int64_t> rows, std::int64_t width,
                                        DataType type, std::optional<bool> quantize = {}) const;
  std::size_t all_gather_encoded_rows_workspace(std::span<const std::int64_t> rows,
                                                std::int64_t width) const;

  /// `in` and `out` hold `count` elements each and may be the same memory.
  void all_reduce(const void* in, void* out, std::int64_t count, DataType type, ReduceOp op,
                  const DeviceCall& call);
  /// in[r] holds counts[r] elements, the chunk that rank r receives; `out` holds counts[rank()] and
  /// may be in[rank()].
  void reduce_scatter(std::span<const void* const> in, std::span<const std::int64_t> counts,
                      void* out, DataType type, ReduceOp op, const DeviceCall& call);
  /// `in` holds counts[rank()] elements; out[r] receives counts[r] elements from rank r. `in` may
  /// be out[rank()]. Every rank, the sender too, gets the decoded encoded bytes.
  void all_gather(const void* in, std::span<void* const> out, std::span<const std::int64_t> counts,
                  DataType type, const DeviceCall& call);

  // As Communicator's of these names, for a communicator that was given a codec of rows. Each
  // segment of finished rows is one launch of it. What an epilogue points to is device memory, and
  // its encoded rows are aligned to DeviceRowCodec::kEncodedAlignment.

  void reduce_scatter_rows(std::span<const void* const> in, std::span<const std::int64_t> rows,
                           std::int64_t width, void* out, DataType type, ReduceOp op,
                           const RowEpilogue& epilogue, const DeviceCall& call);
  void all_gather_rows(const void* in, std::span<void* const> out,
                       std::span<const std::int64_t> rows, std::int64_t width, DataType type,
                       const DeviceCall& call);
  /// Served whatever the options say, in a group of one rank too.
  void all_gather_encoded_rows(const std::byte* in, std::span<void* const> out,
                               std::span<const std::int64_t> rows, std::int64_t width,
                               DataType type, const DeviceCall& call);
  /// RowCodec::apply, on this rank alone: needs no peer, no workspace and no turn.
  void finish_rows(const void* values, DataType type, RowShape shape, void* out,
                   const RowEpilogue& epilogue, void* stream) const;

  /// Calls and bytes; the seconds are 0, since only the device could tell them. A replayed graph
  /// counts nothing.
  Stats stats() const;
  void reset_stats();
  /// A few lines for people.
  std::string describe() const;

  /// The transport's error() or what an earlier call threw; "" while the group is sound.
  std::string error();
  /// Fails all later calls with Error(kAborted, reason). Never throws, never waits.
  void abort(const std::string& reason) noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace agoq
