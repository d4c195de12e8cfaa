// Communicator: options + transport + codec = collectives. The class C++ frameworks use.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "agoqcomm/export.h"
#include "agoqcomm/options.h"
#include "agoqcomm/row_codec.h"
#include "agoqcomm/stats.h"
#include "agoqcomm/topology.h"
#include "agoqcomm/transport.h"
#include "agoqcomm/types.h"

namespace agoq {

/// One call's own settings.
struct CallOptions {
  /// Unset: the group's.
  std::optional<std::chrono::milliseconds> timeout;
  /// For ReduceOp::kPremulSum.
  float factor = 1.0f;
  /// Unset: an operation is quantized where the options select it. Otherwise whether it is, for
  /// this call; type and count still decide what can be. Equal on all ranks.
  std::optional<bool> quantize = {};
};

/// Thread-safe: calls from several threads run one after another, and all ranks must issue them in
/// the same order. A call returns when its result is in the caller's buffer. stats(), describe()
/// and abort() may run beside a call.
///
/// A call is quantized where why_exact() (options.h) says kNone, and exact otherwise: exact sums of
/// bf16 and fp16 are taken in fp32, all exact reductions run in rank order.
///
/// Buffers are host memory of any alignment. Counts are elements, from 0 up; sums follow the
/// numeric contract (docs/numerics.md). Errors: kInvalidArgument before anything is sent; kMismatch
/// naming the peer and the field that differs; kPeerFailed and kTimeout naming peer and operation.
/// After any error but kInvalidArgument the group is failed: later calls throw kAborted at once
/// with the first error's words.
class AGOQ_API Communicator {
 public:
  /// `topology` is the same on all ranks; without one all of them share a node.
  Communicator(std::unique_ptr<Transport> transport, const Options& options,
               std::optional<Topology> topology = {});
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;
  const Options& options() const;
  const Topology& topology() const;

  /// `in` and `out` hold `count` elements each and may be the same memory.
  void all_reduce(const void* in, void* out, std::int64_t count, DataType type, ReduceOp op,
                  const CallOptions& call = {});
  /// in[r] holds counts[r] elements, the chunk that rank r receives; `out` holds counts[rank()] and
  /// may be in[rank()].
  void reduce_scatter(std::span<const void* const> in, std::span<const std::int64_t> counts,
                      void* out, DataType type, ReduceOp op, const CallOptions& call = {});
  /// `in` holds counts[rank()] elements; out[r] receives counts[r] elements from rank r. `in` may
  /// be out[rank()]. Every rank, the sender too, gets the decoded encoded bytes.
  void all_gather(const void* in, std::span<void* const> out, std::span<const std::int64_t> counts,
                  DataType type, const CallOptions& call = {});

  // The same for matrices of rows of `width` elements, of which chunks are whole ones. Blocks end
  // with their row (RowLayout), so that one row's numbers never decide how another's are encoded.

  /// in[r] holds rows[r] rows. Each finished row of this rank goes through `epilogue` while it is
  /// in cache; `out` receives the sum with the residual added. An epilogue's encoding is in the
  /// options' format. Where the call is exact, the sum is rounded to the type first.
  void reduce_scatter_rows(std::span<const void* const> in, std::span<const std::int64_t> rows,
                           std::int64_t width, void* out, DataType type, ReduceOp op,
                           const RowEpilogue& epilogue = {}, const CallOptions& call = {});
  void all_gather_rows(const void* in, std::span<void* const> out,
                       std::span<const std::int64_t> rows, std::int64_t width, DataType type,
                       const CallOptions& call = {});
  /// `in` holds rows[rank()] encoded rows, in the options' format, which travel as they are
  /// whatever the options select: an epilogue's, or those of an earlier call.
  void all_gather_encoded_rows(const std::byte* in, std::span<void* const> out,
                               std::span<const std::int64_t> rows, std::int64_t width,
                               DataType type, const CallOptions& call = {});
  /// RowCodec::apply in the options' format, on this rank alone.
  void finish_rows(const void* values, DataType type, RowShape shape, void* out,
                   const RowEpilogue& epilogue) const;

  // What is below is never quantized and moves any bytes; reduce() takes the types and operations
  // of all_reduce().

  /// `data` holds `count` elements, those of the root on every rank afterwards.
  void broadcast(void* data, std::int64_t count, DataType type, int root,
                 const CallOptions& call = {});
  /// `in` and, on the root, `out` hold `count` elements and may be the same memory. `out` is not
  /// touched on other ranks.
  void reduce(const void* in, void* out, std::int64_t count, DataType type, ReduceOp op, int root,
              const CallOptions& call = {});
  /// `in` holds counts[rank()] elements; the root's out[r] receives counts[r] elements from rank r,
  /// and out[root] may be `in`. `out` may be empty on other ranks.
  void gather(const void* in, std::span<void* const> out, std::span<const std::int64_t> counts,
              DataType type, int root, const CallOptions& call = {});
  /// The root's in[r] holds counts[r] elements, which rank r receives in `out`; in[root] may be
  /// `out`. `in` may be empty on other ranks.
  void scatter(std::span<const void* const> in, std::span<const std::int64_t> counts, void* out,
               DataType type, int root, const CallOptions& call = {});
  /// in[r] holds in_counts[r] elements for rank r; out[r] receives out_counts[r] elements from it,
  /// as many as it has for this rank. No two buffers overlap.
  void all_to_all(std::span<const void* const> in, std::span<const std::int64_t> in_counts,
                  std::span<void* const> out, std::span<const std::int64_t> out_counts,
                  DataType type, const CallOptions& call = {});
  /// Sends `count` elements to rank `to`, which receives as many of the type by receive(). The two
  /// of them call these in the same order among their calls; the other ranks do not. Returns when
  /// `data` may change, which may be before the peer has called: what is short travels ahead.
  void send(const void* data, std::int64_t count, DataType type, int to,
            const CallOptions& call = {});
  void receive(void* data, std::int64_t count, DataType type, int from,
               const CallOptions& call = {});
  /// Returns once every rank has called it.
  void barrier(const CallOptions& call = {});

  /// For a call that something else will serve: checks that every rank makes the same one, in turn
  /// with the calls above, and moves no payload.
  void check_call(Operation operation, DataType type, ReduceOp op, std::int64_t count, int root,
                  const CallOptions& call = {});
  /// Counts a call served elsewhere.
  void record_exact(Operation operation, ExactReason reason, std::int64_t elements,
                    std::int64_t wire_bytes, double seconds);

  Stats stats() const;
  void reset_stats();
  /// A few lines for people: ranks, transport, format, ISA, segment, thresholds, topology,
  /// algorithm and why.
  std::string describe() const;

  /// Ends the running call and fails all later ones with Error(kAborted, reason). Never throws,
  /// never waits for a peer.
  void abort(const std::string& reason) noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace agoq
