#include "agoqcomm/cuda_row_codec.h"

#include <algorithm>
#include <bit>
#include <string>

#include "agoqcomm/error.h"
#include "codec/argument_checks.h"
#include "codec/cuda/arguments.h"
#include "codec/cuda/launch.h"
#include "codec/row_checks.h"

namespace agoq {
namespace {

/// Wider launches are no faster; the kernel's loop does the rest.
constexpr int kMostThreadBlocks = 1 << 16;

void check_encoded(const char* function, const std::byte* encoded) {
  check_alignment(function, encoded, DeviceRowCodec::kEncodedAlignment);
}

void check_pieces(const char* function, const Pieces& pieces, const void* values, DataType type) {
  check_row_pieces(function, pieces, values, type);
  if (pieces.encoded.size() > CudaCodec::kMaxPieces) {
    throw Error(ErrorCode::kUnsupported,
                std::string(function) + ": " + std::to_string(pieces.encoded.size()) +
                    " pieces; one call sums up to " + std::to_string(CudaCodec::kMaxPieces));
  }
  for (int rank = 0; rank < static_cast<int>(pieces.encoded.size()); ++rank) {
    if (rank != pieces.own_rank) check_encoded(function, pieces.encoded[rank]);
  }
}

void check_epilogue(const char* function, RowShape shape, const void* values,
                    const RowEpilogue& epilogue) {
  check_row_epilogue(function, shape, values, epilogue);
  check_encoded(function, epilogue.encoded.data);
}

std::uint8_t* bytes_of(std::byte* encoded) { return reinterpret_cast<std::uint8_t*>(encoded); }
const std::uint8_t* bytes_of(const std::byte* encoded) {
  return reinterpret_cast<const std::uint8_t*>(encoded);
}

void set_shape(cuda::RowArguments& to, const BlockFormat& format, RowShape shape) {
  const RowLayout layout(format, shape);
  const auto vectors = static_cast<unsigned>(format.block / cuda::kVector);
  to.shape = {static_cast<int>(vectors), std::countr_zero(vectors), format.scale};
  to.rows = layout.rows();
  to.width = static_cast<int>(layout.width());
  to.row_code_bytes = layout.row_code_bytes();
  to.row_scale_bytes = layout.row_scale_bytes();
  to.scale_offset = layout.scale_offset();
}

void set_pieces(cuda::RowArguments& to, const Pieces& pieces) {
  to.own = pieces.own;
  to.own_type = pieces.own_type;
  to.own_rank = pieces.own_rank;
  for (int rank = 0; rank < static_cast<int>(pieces.encoded.size()); ++rank) {
    if (rank != pieces.own_rank) to.pieces[to.pieces_a_row++] = bytes_of(pieces.encoded[rank]);
  }
}

void set_epilogue(cuda::RowArguments& to, const BlockFormat& format, const RowEpilogue& epilogue) {
  const EncodedRows& encoded = epilogue.encoded;
  to.residual = epilogue.residual;
  to.normed = epilogue.normed;
  // A norm of which nothing is left would take the kernel's second pass for nothing.
  if (epilogue.norm && (epilogue.normed != nullptr || encoded.data != nullptr)) {
    to.has_norm = true;
    to.epsilon = epilogue.norm->epsilon;
    to.weight = epilogue.norm->weight;
  }
  if (encoded.data == nullptr) return;
  const Rounding& rounding = epilogue.rounding;
  to.is_stochastic = rounding.stochastic;
  to.rounding = {rounding.seed, rounding.call, rounding.rank, rounding.stage};
  to.first_element = rounding.first_element;
  const RowLayout whole(format, {encoded.rows, to.width});
  std::uint8_t* codes = bytes_of(encoded.data);
  to.codes = codes + encoded.first * whole.row_code_bytes();
  to.scales = codes + whole.scale_offset() + encoded.first * whole.row_scale_bytes();
  to.gap = codes + whole.code_bytes();
  to.gap_bytes = static_cast<int>(whole.scale_offset() - whole.code_bytes());
}

}  // namespace

CudaRowCodec::CudaRowCodec(const BlockFormat& format, int max_thread_blocks)
    : codec_(format, max_thread_blocks),
      max_thread_blocks_(max_thread_blocks == 0 ? kMostThreadBlocks : max_thread_blocks) {}

void CudaRowCodec::start(const char* function, const Pieces& pieces, RowShape shape, float factor,
                         void* values, DataType type, void* stream,
                         const RowEpilogue& epilogue) const {
  cuda::RowArguments arguments{};
  set_shape(arguments, format(), shape);
  set_pieces(arguments, pieces);
  set_epilogue(arguments, format(), epilogue);
  arguments.factor = factor;
  arguments.values = values;
  arguments.type = type;
  constexpr int kRowsOfBlock = cuda::kThreads / cuda::kWarp;
  const std::int64_t wanted = (shape.rows + kRowsOfBlock - 1) / kRowsOfBlock;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(wanted, max_thread_blocks_));
  const int error = cuda::launch_rows(format().element, arguments, {blocks, 1, stream});
  if (error == 0) return;
  throw Error(ErrorCode::kSystem,
              std::string(function) + ": CUDA refused the launch: " + cuda::error_text(error));
}

void CudaRowCodec::encode(const void* values, DataType type, RowShape shape, std::byte* encoded,
                          void* stream, const Rounding& rounding) const {
  constexpr auto kFunction = "CudaRowCodec::encode";
  const RowLayout layout(format(), shape);
  if (is_flat(shape)) {
    return codec_.encode(values, type, shape.rows * shape.width, encoded, stream, rounding);
  }
  require(encoded != nullptr || shape.rows == 0, kFunction, "a buffer is null");
  RowEpilogue epilogue;
  epilogue.encoded = {encoded, shape.rows, 0};
  epilogue.rounding = rounding;
  apply(values, type, shape, nullptr, stream, epilogue);
}

void CudaRowCodec::decode(const std::byte* encoded, RowShape shape, void* values, DataType type,
                          void* stream) const {
  const RowLayout layout(format(), shape);
  if (is_flat(shape)) {
    return codec_.decode(encoded, shape.rows * shape.width, values, type, stream);
  }
  const std::byte* pieces[] = {encoded};
  sum_decode({.encoded = pieces}, shape, 1.0f, values, type, stream);
}

void CudaRowCodec::sum_decode(const Pieces& pieces, RowShape shape, float factor, void* values,
                              DataType type, void* stream, const RowEpilogue& epilogue) const {
  constexpr auto kFunction = "CudaRowCodec::sum_decode";
  const RowLayout layout(format(), shape);
  check_type(kFunction, type);
  if (shape.rows == 0) return;
  check_pieces(kFunction, pieces, values, type);
  check_epilogue(kFunction, shape, values, epilogue);
  if (epilogue.empty() && is_flat(shape)) {
    return codec_.sum_decode(pieces, shape.rows * shape.width, factor, values, type, stream);
  }
  start(kFunction, pieces, shape, factor, values, type, stream, epilogue);
}

void CudaRowCodec::apply(const void* values, DataType type, RowShape shape, void* out, void* stream,
                         const RowEpilogue& epilogue) const {
  constexpr auto kFunction = "CudaRowCodec::apply";
  const RowLayout layout(format(), shape);
  check_type(kFunction, type);
  if (shape.rows == 0) return;
  check_epilogue(kFunction, shape, out, epilogue);
  require(values != nullptr, kFunction, "the buffer of elements is null");
  // A sum of the owner's piece and no other.
  const std::byte* none[] = {nullptr};
  start(kFunction, {.encoded = none, .own = values, .own_type = type, .own_rank = 0}, shape, 1.0f,
        out, type, stream, epilogue);
}

}  // namespace agoq
