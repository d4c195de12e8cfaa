#include "agoqcomm/cuda_codec.h"

#include <algorithm>
#include <bit>
#include <string>

#include "agoqcomm/error.h"
#include "codec/argument_checks.h"
#include "codec/cuda/arguments.h"
#include "codec/cuda/launch.h"

namespace agoq {
namespace {

/// Wider launches are no faster; the kernels' loops do the rest.
constexpr int kMostThreadBlocks = 1 << 16;

/// An output in the memory of an input, element by element.
void check_in_place(const char* function, const void* output, DataType output_type,
                    const void* input, DataType input_type, const char* whose) {
  require(output == nullptr || output != input || size_of(output_type) == size_of(input_type),
          function, "the sum cannot replace ", whose,
          ", whose elements have another size: threads would overwrite what others must read");
}

void check_sum_segment(const char* function, const DeviceSumSegment& segment, const DeviceSum& sum,
                       std::size_t ranks) {
  check_count(function, segment.count);
  require(segment.pieces.size() == ranks, function, "segments have ", ranks, " and ",
          segment.pieces.size(), " pieces; all must have as many");
  if (segment.count == 0) return;
  require((segment.own != nullptr) == (sum.own_rank >= 0), function, "own_rank is ", sum.own_rank,
          "; it must be -1 where `own` is null, and only there");
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (static_cast<int>(rank) != sum.own_rank) {
      check_encoded(function, segment.pieces[rank], segment.count);
    }
  }
  check_in_place(function, segment.values, sum.type, segment.own, sum.own_type,
                 "the owner's piece");
  check_in_place(function, segment.values, sum.type, segment.start, DataType::kFloat32,
                 "what it starts from");
  check_in_place(function, segment.values, sum.type, segment.residual, sum.residual_type,
                 "the residual");
}

void check_sum(const char* function, std::span<const DeviceSumSegment> segments,
               const DeviceSum& sum) {
  check_type(function, sum.type);
  check_type(function, sum.own_type, "an owner's piece");
  check_type(function, sum.residual_type, "a residual");
  if (segments.empty()) return;
  const std::size_t ranks = segments.front().pieces.size();
  require(ranks >= 1, function, "there are no pieces to sum");
  if (ranks > CudaCodec::kMaxPieces) {
    throw Error(ErrorCode::kUnsupported, std::string(function) + ": " + std::to_string(ranks) +
                                             " pieces; one call sums up to " +
                                             std::to_string(CudaCodec::kMaxPieces) +
                                             ", and the next call may start from its fp32 sum");
  }
  require(sum.own_rank >= -1 && sum.own_rank < static_cast<int>(ranks), function, "own_rank is ",
          sum.own_rank, "; it must be below the ", ranks, " pieces, or -1");
  for (const DeviceSumSegment& segment : segments) check_sum_segment(function, segment, sum, ranks);
}

/// What a segment adds to the rounding of its call.
void check_first_element(const char* function, const Rounding& rounding, std::int64_t first) {
  require(!rounding.stochastic || first >= 0, function,
          "a segment's first_element must be 0 or more");
}

void check_launch(const char* function, int error) {
  if (error == 0) return;
  throw Error(ErrorCode::kSystem,
              std::string(function) + ": CUDA refused the launch: " + cuda::error_text(error));
}

cuda::BlockShape shape_of(const BlockFormat& format) {
  const auto vectors = static_cast<unsigned>(format.block / cuda::kVector);
  return {static_cast<int>(vectors), std::countr_zero(vectors), format.scale};
}

cuda::RoundingKey key_of(const Rounding& rounding) {
  return {rounding.seed, rounding.call, rounding.rank, rounding.stage};
}

/// Segments of one launch, filled up until it is full.
template <class Arguments>
class Batch {
 public:
  Batch(const BlockFormat& format, int most_thread_blocks, int most_segments, void* stream)
      : format_(format),
        most_thread_blocks_(most_thread_blocks),
        most_segments_(most_segments),
        stream_(stream) {
    arguments.shape = shape_of(format);
  }

  /// The place of one more segment, whose kernel arguments the caller fills in.
  auto& add(std::int64_t count) {
    longest_ = std::max(longest_, count);
    auto& segment = arguments.segments[segments_++];
    segment.count = count;
    segment.scale_offset = WireLayout(format_, count).scale_offset();
    return segment;
  }

  int size() const { return segments_; }
  bool is_full() const { return segments_ == most_segments_; }

  /// Calls `start(arguments, launch)` unless there is nothing to do; the batch is empty afterwards.
  template <class Start>
  void flush(const char* function, Start start) {
    if (segments_ == 0) return;
    // A thread block takes one tile a warp; tiles are longer than a warp's vectors for long blocks.
    const std::int64_t elements = std::int64_t{cuda::kThreads} * cuda::kVector *
                                  std::max(1, format_.block / (cuda::kWarp * cuda::kVector));
    const std::int64_t wanted = (longest_ + elements - 1) / elements;
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(wanted, most_thread_blocks_));
    const cuda::Launch launch{blocks, static_cast<unsigned>(segments_), stream_};
    segments_ = 0;
    longest_ = 0;
    check_launch(function, start(arguments, launch));
  }

  Arguments arguments{};

 private:
  const BlockFormat& format_;
  int most_thread_blocks_;
  int most_segments_;
  void* stream_;
  int segments_ = 0;
  std::int64_t longest_ = 0;
};

const std::uint8_t* bytes_of(const std::byte* encoded) {
  return reinterpret_cast<const std::uint8_t*>(encoded);
}
std::uint8_t* bytes_of(std::byte* encoded) { return reinterpret_cast<std::uint8_t*>(encoded); }

template <class Start>
void decode_segments(const char* function, std::span<const DeviceDecodeSegment> segments,
                     Batch<cuda::DecodeArguments>& batch, Start start) {
  for (const DeviceDecodeSegment& segment : segments) {
    check_values(function, segment.values, segment.count);
    check_encoded(function, segment.encoded, segment.count);
  }
  for (const DeviceDecodeSegment& segment : segments) {
    if (segment.count == 0) continue;
    cuda::DecodeSegment& to = batch.add(segment.count);
    to.encoded = bytes_of(segment.encoded);
    to.values = segment.values;
    if (batch.is_full()) batch.flush(function, start);
  }
  batch.flush(function, start);
}

template <class Start>
void sum_segments(const char* function, std::span<const DeviceSumSegment> segments,
                  const DeviceSum& sum, std::int64_t first_element,
                  Batch<cuda::SumArguments>& batch, Start start) {
  if (segments.empty()) return;
  cuda::SumArguments& arguments = batch.arguments;
  arguments.factor = sum.factor;
  arguments.pieces_a_segment =
      static_cast<int>(segments.front().pieces.size()) - (sum.own_rank >= 0 ? 1 : 0);
  arguments.own_rank = sum.own_rank;
  arguments.own_type = sum.own_type;
  arguments.residual_type = sum.residual_type;
  arguments.type = sum.type;
  for (const DeviceSumSegment& segment : segments) {
    if (segment.count == 0) continue;
    const std::uint8_t** piece = arguments.pieces + batch.size() * arguments.pieces_a_segment;
    for (std::size_t rank = 0; rank < segment.pieces.size(); ++rank) {
      if (static_cast<int>(rank) != sum.own_rank) *piece++ = bytes_of(segment.pieces[rank]);
    }
    cuda::SumSegment& to = batch.add(segment.count);
    to.own = segment.own;
    to.start = segment.start;
    to.residual = segment.residual;
    to.encoded = bytes_of(segment.encoded);
    to.values = segment.values;
    to.first_element = first_element + segment.first_element;
    if (batch.is_full()) batch.flush(function, start);
  }
  batch.flush(function, start);
}

int most_sum_segments(std::span<const DeviceSumSegment> segments) {
  const auto ranks = segments.empty() ? 1 : static_cast<int>(segments.front().pieces.size());
  return std::min(CudaCodec::kMaxSumSegments, CudaCodec::kMaxPieces / ranks);
}

DeviceSumSegment segment_of(const Pieces& pieces, std::int64_t count) {
  DeviceSumSegment segment;
  segment.pieces = pieces.encoded;
  segment.own = pieces.own;
  segment.count = count;
  return segment;
}

DeviceSum sum_of(const Pieces& pieces, DataType type, float factor) {
  DeviceSum sum;
  sum.own_rank = pieces.own_rank;
  sum.own_type = pieces.own_type;
  sum.type = type;
  sum.factor = factor;
  return sum;
}

}  // namespace

bool CudaCodec::is_built() noexcept { return cuda::is_built(); }

int CudaCodec::device_count() noexcept { return cuda::device_count(); }

CudaCodec::CudaCodec(const BlockFormat& format, int max_thread_blocks)
    : format_(format),
      max_thread_blocks_(max_thread_blocks == 0 ? kMostThreadBlocks : max_thread_blocks) {
  format.validate();
  require(max_thread_blocks_ > 0, "CudaCodec", "max_thread_blocks must be 0 or more");
  if (!is_built()) {
    throw Error(ErrorCode::kUnsupported,
                "this build of libagoqcomm has no CUDA kernels; build it where nvcc is found, or "
                "with -DAGOQ_CUDA=ON to be told why it is not");
  }
  if (device_count() == 0) {
    throw Error(ErrorCode::kUnsupported,
                "CUDA reports no device; use Codec, which computes the same bits on the CPU");
  }
}

void CudaCodec::encode(std::span<const DeviceEncodeSegment> segments, DataType type, void* stream,
                       const Rounding& rounding) const {
  constexpr auto kFunction = "CudaCodec::encode";
  check_type(kFunction, type);
  check_rounding(kFunction, rounding);
  for (const DeviceEncodeSegment& segment : segments) {
    check_values(kFunction, segment.values, segment.count);
    check_encoded(kFunction, segment.encoded, segment.count);
    check_first_element(kFunction, rounding, segment.first_element);
  }
  Batch<cuda::EncodeArguments> batch(format_, max_thread_blocks_, kMaxEncodeSegments, stream);
  batch.arguments.rounding = key_of(rounding);
  batch.arguments.type = type;
  const auto start = [&](const cuda::EncodeArguments& arguments, const cuda::Launch& launch) {
    return cuda::launch_encode(format_.element, rounding.stochastic, arguments, launch);
  };
  for (const DeviceEncodeSegment& segment : segments) {
    if (segment.count == 0) continue;
    cuda::EncodeSegment& to = batch.add(segment.count);
    to.values = segment.values;
    to.encoded = bytes_of(segment.encoded);
    to.first_element = rounding.first_element + segment.first_element;
    if (batch.is_full()) batch.flush(kFunction, start);
  }
  batch.flush(kFunction, start);
}

void CudaCodec::decode(std::span<const DeviceDecodeSegment> segments, DataType type,
                       void* stream) const {
  constexpr auto kFunction = "CudaCodec::decode";
  check_type(kFunction, type);
  Batch<cuda::DecodeArguments> batch(format_, max_thread_blocks_, kMaxEncodeSegments, stream);
  decode_segments(kFunction, segments, batch, [&](const auto& arguments, const auto& launch) {
    return cuda::launch_decode(format_.element, type, arguments, launch);
  });
}

void CudaCodec::decode_accumulate(std::span<const DeviceDecodeSegment> segments,
                                  void* stream) const {
  constexpr auto kFunction = "CudaCodec::decode_accumulate";
  Batch<cuda::DecodeArguments> batch(format_, max_thread_blocks_, kMaxEncodeSegments, stream);
  decode_segments(kFunction, segments, batch, [&](const auto& arguments, const auto& launch) {
    return cuda::launch_accumulate(format_.element, arguments, launch);
  });
}

void CudaCodec::sum_decode(std::span<const DeviceSumSegment> segments, const DeviceSum& sum,
                           void* stream) const {
  constexpr auto kFunction = "CudaCodec::sum_decode";
  check_sum(kFunction, segments, sum);
  for (const DeviceSumSegment& segment : segments) {
    check_values(kFunction, segment.values, segment.count);
  }
  Batch<cuda::SumArguments> batch(format_, max_thread_blocks_, most_sum_segments(segments), stream);
  sum_segments(kFunction, segments, sum, 0, batch, [&](const auto& arguments, const auto& launch) {
    return cuda::launch_sum_decode(format_.element, arguments, launch);
  });
}

void CudaCodec::sum_encode(std::span<const DeviceSumSegment> segments, const DeviceSum& sum,
                           void* stream, const Rounding& rounding) const {
  constexpr auto kFunction = "CudaCodec::sum_encode";
  check_sum(kFunction, segments, sum);
  check_rounding(kFunction, rounding);
  for (const DeviceSumSegment& segment : segments) {
    check_encoded(kFunction, segment.encoded, segment.count);
    check_replaced(kFunction, segment.pieces, sum.own_rank, segment.encoded,
                   WireLayout(format_, segment.count).total_bytes());
    check_first_element(kFunction, rounding, segment.first_element);
  }
  Batch<cuda::SumArguments> batch(format_, max_thread_blocks_, most_sum_segments(segments), stream);
  batch.arguments.rounding = key_of(rounding);
  sum_segments(kFunction, segments, sum, rounding.first_element, batch,
               [&](const auto& arguments, const auto& launch) {
                 return cuda::launch_sum_encode(format_.element, rounding.stochastic, arguments,
                                                launch);
               });
}

void CudaCodec::encode(const void* values, DataType type, std::int64_t count, std::byte* encoded,
                       void* stream, const Rounding& rounding) const {
  const DeviceEncodeSegment segment{values, encoded, count, 0};
  encode({&segment, 1}, type, stream, rounding);
}

void CudaCodec::decode(const std::byte* encoded, std::int64_t count, void* values, DataType type,
                       void* stream) const {
  const DeviceDecodeSegment segment{encoded, values, count};
  decode({&segment, 1}, type, stream);
}

void CudaCodec::decode_accumulate(const std::byte* encoded, std::int64_t count, float* accumulator,
                                  void* stream) const {
  const DeviceDecodeSegment segment{encoded, accumulator, count};
  decode_accumulate({&segment, 1}, stream);
}

void CudaCodec::sum_decode(const Pieces& pieces, std::int64_t count, float factor, void* values,
                           DataType type, void* stream) const {
  DeviceSumSegment segment = segment_of(pieces, count);
  segment.values = values;
  sum_decode({&segment, 1}, sum_of(pieces, type, factor), stream);
}

void CudaCodec::sum_encode(const Pieces& pieces, std::int64_t count, float factor,
                           std::byte* encoded, void* values, DataType type, void* stream,
                           const Rounding& rounding) const {
  DeviceSumSegment segment = segment_of(pieces, count);
  segment.encoded = encoded;
  segment.values = values;
  sum_encode({&segment, 1}, sum_of(pieces, type, factor), stream, rounding);
}

}  // namespace agoq
