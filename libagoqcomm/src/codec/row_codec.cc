#include "agoqcomm/row_codec.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "codec/argument_checks.h"
#include "codec/codec_threads.h"
#include "codec/encoded_blocks.h"
#include "codec/row_checks.h"
#include "codec/row_kernels.h"
#include "codec/single_block.h"

namespace agoq {
namespace {

/// Elements worth a thread's waking up for.
constexpr std::int64_t kLeastPart = 8192;
constexpr int kFloat32 = static_cast<int>(DataType::kFloat32);

const RowKernels* row_kernels(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::kAvx512) return avx512_row_kernels();
  if (isa == CpuIsa::kAvx2) return avx2_row_kernels();
#endif
  return scalar_row_kernels();
}

/// Memory for one row in fp32, as RowKernels take it.
class RowMemory {
 public:
  explicit RowMemory(std::int64_t width)
      : memory_(static_cast<std::size_t>(padded_row(width)) + kAlignment) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) / sizeof(float);
    row_ = memory_.data() + (kAlignment - address % kAlignment) % kAlignment;
  }
  float* row() { return row_; }

 private:
  static constexpr std::size_t kAlignment = 64 / sizeof(float);
  std::vector<float> memory_;
  float* row_;
};

struct RowRange {
  std::int64_t first;
  std::int64_t end;
};

/// Calls work(range) for ranges that make up the rows, side by side where that pays.
template <typename Work>
void in_parts(CodecThreads* threads, RowShape shape, const Work& work) {
  const std::int64_t most = threads == nullptr ? 1 : threads->threads();
  const std::int64_t worth = std::max<std::int64_t>(shape.rows * shape.width / kLeastPart, 1);
  const int parts = static_cast<int>(std::min({most, worth, shape.rows}));
  if (parts < 2) return work(RowRange{0, shape.rows});
  threads->run(parts, [&](int part) {
    work(RowRange{shape.rows * part / parts, shape.rows * (part + 1) / parts});
  });
}

/// The zero bytes between codes and scales.
void write_gap(std::byte* encoded, const RowLayout& layout) {
  std::fill(encoded + layout.code_bytes(), encoded + layout.scale_offset(), std::byte{0});
}

}  // namespace

/// What one thread does to the rows of a call, one by one.
class RowCodec::Pass {
 public:
  Pass(const RowCodec& codec, RowShape shape, DataType type)
      : rows_(codec),
        kernels_(*codec.codec_.kernels_),
        layout_(codec.format(), shape),
        type_(type),
        value_bytes_(shape.width * static_cast<std::int64_t>(size_of(type))),
        whole_(shape.width / codec.format().block),
        memory_(shape.width) {}

  template <typename Void>
  Void* values(Void* base, std::int64_t row) const {
    if (base == nullptr) return nullptr;
    using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    return static_cast<Byte*>(base) + row * value_bytes_;
  }

  void load(const void* from) {
    float* x = memory_.row();
    std::fill_n(x, layout_.width(), -0.0f);  // which leaves every number as it is, a -0 too
    rows_.row_kernels_->finish[static_cast<int>(type_)](x, layout_.width(), from, nullptr);
  }

  void encode(const void* from, DataType type, std::int64_t row, const RowLayout& layout,
              std::byte* encoded, Rounding rounding, std::int64_t index) const {
    const MutableEncodedBlocks out = blocks_of(encoded, layout, row);
    rounding.first_element += index * layout_.width();
    const std::int64_t fast = rounding.stochastic ? 0 : whole_;
    kernels_.encode[static_cast<int>(type)](from, {0, fast}, out);
    each_block(fast, [&](const SingleBlock& block) { block.encode(from, type, out, rounding); });
  }
  void encode(const void* from, std::int64_t row, std::byte* encoded,
              const Rounding& rounding) const {
    encode(from, type_, row, layout_, encoded, rounding, row);
  }

  void decode(const std::byte* encoded, std::int64_t row, void* to) const {
    const auto* codes = reinterpret_cast<const std::uint8_t*>(encoded);
    const EncodedBlocks in{
        codes + row * layout_.row_code_bytes(),
        codes + layout_.scale_offset() + row * layout_.row_scale_bytes(),
        rows_.format().scale,
    };
    kernels_.decode[static_cast<int>(type_)](in, {0, whole_}, to);
    each_block(whole_, [&](const SingleBlock& block) { block.decode(in, to, type_); });
  }

  void sum(const Pieces& pieces, std::int64_t row, float factor) {
    const SumOfPieces of_row = sum_of(pieces, row, factor);
    kernels_.sum_decode[kFloat32](of_row, {0, whole_}, memory_.row());
    each_block(whole_, [&](const SingleBlock& block) {
      block.sum_decode(of_row, memory_.row(), DataType::kFloat32);
    });
  }

  void sum_encode(const Pieces& pieces, std::int64_t row, float factor, std::byte* encoded,
                  void* to, Rounding rounding) {
    const SumOfPieces of_row = sum_of(pieces, row, factor);
    const MutableEncodedBlocks out = blocks_of(encoded, layout_, row);
    rounding.first_element += row * layout_.width();
    const std::int64_t fast = rounding.stochastic ? 0 : whole_;
    kernels_.sum_encode[static_cast<int>(type_)](of_row, {0, fast}, out, to);
    each_block(fast, [&](const SingleBlock& block) {
      block.sum_encode(of_row, out, to, type_, rounding);
    });
  }

  /// Of the row that is in memory.
  void finish(std::int64_t row, void* to, const RowEpilogue& epilogue) {
    const RowKernels& kernels = *rows_.row_kernels_;
    const int type = static_cast<int>(type_);
    const std::int64_t width = layout_.width();
    float* x = memory_.row();
    kernels.finish[type](x, width, values(epilogue.residual, row), values(to, row));
    if (epilogue.norm) {
      const float inverse =
          inverse_rms(kernels.sum_of_squares(x, width), width, epilogue.norm->epsilon);
      kernels.scale[type](x, width, inverse, epilogue.norm->weight, values(epilogue.normed, row));
    }
    const EncodedRows& encoded = epilogue.encoded;
    if (encoded.data == nullptr) return;
    const RowLayout layout(rows_.format(), {encoded.rows, width});
    encode(x, DataType::kFloat32, encoded.first + row, layout, encoded.data, epilogue.rounding,
           row);
  }

 private:
  /// Calls work(block) for all blocks of a row from `first` on.
  template <typename Work>
  void each_block(std::int64_t first, const Work& work) const {
    const std::int64_t block = rows_.format().block;
    for (; first < layout_.row_blocks(); ++first) {
      const std::int64_t length = std::min(block, layout_.width() - first * block);
      work(SingleBlock(rows_.format(), kernels_, first, static_cast<int>(length)));
    }
  }

  MutableEncodedBlocks blocks_of(std::byte* encoded, const RowLayout& layout,
                                 std::int64_t row) const {
    auto* codes = reinterpret_cast<std::uint8_t*>(encoded);
    return {codes + row * layout.row_code_bytes(),
            codes + layout.scale_offset() + row * layout.row_scale_bytes(), rows_.format().scale};
  }

  /// Valid until the next call.
  SumOfPieces sum_of(const Pieces& pieces, std::int64_t row, float factor) {
    pieces_.assign(pieces.encoded.begin(), pieces.encoded.end());
    for (const std::byte*& piece : pieces_) {
      if (piece != nullptr) piece += row * layout_.row_code_bytes();
    }
    const std::int64_t own_bytes =
        layout_.width() * static_cast<std::int64_t>(size_of(pieces.own_type));
    return {.encoded = pieces_.data(),
            .scale_offset = layout_.scale_offset() +
                            row * (layout_.row_scale_bytes() - layout_.row_code_bytes()),
            .scale_type = rows_.format().scale,
            .ranks = static_cast<int>(pieces_.size()),
            .own_rank = pieces.own_rank,
            .own = pieces.own == nullptr
                       ? nullptr
                       : static_cast<const std::byte*>(pieces.own) + row * own_bytes,
            .own_type = pieces.own_type,
            .factor = factor};
  }

  const RowCodec& rows_;
  const KernelTable& kernels_;
  const RowLayout layout_;
  const DataType type_;
  const std::int64_t value_bytes_;  // Of a row.
  const std::int64_t whole_;        // Blocks of a row that are not short.
  RowMemory memory_;
  std::vector<const std::byte*> pieces_;
};

RowCodec::RowCodec(const Codec& codec) : codec_(codec), row_kernels_(row_kernels(codec.isa())) {}

bool RowCodec::is_flat(RowShape shape, const std::byte* encoded) const {
  return shape.width % format().block == 0 && reinterpret_cast<std::uintptr_t>(encoded) % 4 == 0;
}

bool RowCodec::are_flat(const Pieces& pieces, RowShape shape) const {
  return std::all_of(pieces.encoded.begin(), pieces.encoded.end(),
                     [&](const std::byte* piece) { return is_flat(shape, piece); });
}

void RowCodec::encode(const void* values, DataType type, RowShape shape, std::byte* encoded,
                      const Rounding& rounding) const {
  const RowLayout layout(format(), shape);
  check_type("RowCodec::encode", type);
  check_rounding("RowCodec::encode", rounding);
  if (shape.rows == 0) return;
  require(values != nullptr && encoded != nullptr, "RowCodec::encode", "a buffer is null");
  if (is_flat(shape, encoded)) {
    return codec_.encode(values, type, shape.rows * shape.width, encoded, rounding);
  }
  write_gap(encoded, layout);
  in_parts(codec_.threads_.get(), shape, [&](RowRange rows) {
    const Pass pass(*this, shape, type);
    for (std::int64_t row = rows.first; row < rows.end; ++row) {
      pass.encode(pass.values(values, row), row, encoded, rounding);
    }
  });
}

void RowCodec::decode(const std::byte* encoded, RowShape shape, void* values, DataType type,
                      CacheUse use) const {
  const RowLayout layout(format(), shape);
  check_type("RowCodec::decode", type);
  if (shape.rows == 0) return;
  require(values != nullptr && encoded != nullptr, "RowCodec::decode", "a buffer is null");
  if (is_flat(shape, encoded)) {
    return codec_.decode(encoded, shape.rows * shape.width, values, type, use);
  }
  in_parts(codec_.threads_.get(), shape, [&](RowRange rows) {
    const Pass pass(*this, shape, type);
    for (std::int64_t row = rows.first; row < rows.end; ++row) {
      pass.decode(encoded, row, pass.values(values, row));
    }
  });
}

void RowCodec::sum_decode(const Pieces& pieces, RowShape shape, float factor, void* values,
                          DataType type, const RowEpilogue& epilogue) const {
  const RowLayout layout(format(), shape);
  check_type("RowCodec::sum_decode", type);
  if (shape.rows == 0) return;
  check_row_pieces("RowCodec::sum_decode", pieces, values, type);
  if (epilogue.empty() && are_flat(pieces, shape)) {
    return codec_.sum_decode(pieces, shape.rows * shape.width, factor, values, type);
  }
  check_row_epilogue("RowCodec::sum_decode", shape, values, epilogue);
  if (const EncodedRows& to = epilogue.encoded; to.data != nullptr) {
    write_gap(to.data, RowLayout(format(), {to.rows, shape.width}));
  }
  in_parts(codec_.threads_.get(), shape, [&](RowRange rows) {
    Pass pass(*this, shape, type);
    for (std::int64_t row = rows.first; row < rows.end; ++row) {
      pass.sum(pieces, row, factor);
      pass.finish(row, values, epilogue);
    }
  });
}

void RowCodec::sum_encode(const Pieces& pieces, RowShape shape, float factor, std::byte* encoded,
                          void* values, DataType type, const Rounding& rounding) const {
  const RowLayout layout(format(), shape);
  check_type("RowCodec::sum_encode", type);
  check_rounding("RowCodec::sum_encode", rounding);
  if (shape.rows == 0) return;
  check_row_pieces("RowCodec::sum_encode", pieces, values, type);
  require(encoded != nullptr, "RowCodec::sum_encode", "the buffer of encoded bytes is null");
  if (is_flat(shape, encoded) && are_flat(pieces, shape)) {
    return codec_.sum_encode(pieces, shape.rows * shape.width, factor, encoded, values, type,
                             rounding);
  }
  write_gap(encoded, layout);
  in_parts(codec_.threads_.get(), shape, [&](RowRange rows) {
    Pass pass(*this, shape, type);
    for (std::int64_t row = rows.first; row < rows.end; ++row) {
      pass.sum_encode(pieces, row, factor, encoded, pass.values(values, row), rounding);
    }
  });
}

void RowCodec::check(DataType type, RowShape shape, const void* out,
                     const RowEpilogue& epilogue) const {
  const RowLayout layout(format(), shape);
  check_type("RowCodec::apply", type);
  if (shape.rows > 0) check_row_epilogue("RowCodec::apply", shape, out, epilogue);
}

void RowCodec::apply(const void* values, DataType type, RowShape shape, void* out,
                     const RowEpilogue& epilogue) const {
  check(type, shape, out, epilogue);
  if (shape.rows == 0) return;
  require(values != nullptr, "RowCodec::apply", "the buffer of elements is null");
  if (const EncodedRows& to = epilogue.encoded; to.data != nullptr) {
    write_gap(to.data, RowLayout(format(), {to.rows, shape.width}));
  }
  in_parts(codec_.threads_.get(), shape, [&](RowRange rows) {
    Pass pass(*this, shape, type);
    for (std::int64_t row = rows.first; row < rows.end; ++row) {
      pass.load(pass.values(values, row));
      pass.finish(row, out, epilogue);
    }
  });
}

}  // namespace agoq
