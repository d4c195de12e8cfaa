#include "agoqcomm/codec.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "agoqcomm/error.h"
#include "codec/argument_checks.h"
#include "codec/codec_threads.h"
#include "codec/encoded_blocks.h"
#include "codec/kernel_table.h"
#include "codec/overlap.h"
#include "codec/single_block.h"
#include "format/formats.h"

namespace agoq {
namespace {

/// Outputs from here on leave the caches anyway: storing past them saves reading every line first.
constexpr std::int64_t kStreamedBytes = std::int64_t{16} << 20;

bool is_streamed(CacheUse use, const void* values, std::int64_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(values) % 64 != 0) return false;
  return use == CacheUse::kStreamed || (use == CacheUse::kAutomatic && bytes >= kStreamedBytes);
}

/// Elements worth a thread's waking up for.
constexpr std::int64_t kLeastPart = 8192;

void check_pieces(const char* function, const Pieces& pieces, std::int64_t count,
                  const void* values, DataType type) {
  const auto ranks = static_cast<std::int64_t>(pieces.encoded.size());
  require(ranks >= 1, function, "there are no pieces to sum");
  const bool owned = pieces.own != nullptr || (count == 0 && pieces.own_rank >= 0);
  require(owned ? pieces.own_rank >= 0 && pieces.own_rank < ranks : pieces.own_rank == -1, function,
          "own_rank is ", pieces.own_rank, "; it must be the owner's place among the ", ranks,
          " pieces, or -1 where `own` is null");
  if (owned) check_type(function, pieces.own_type, "an owner's piece");
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    if (rank == pieces.own_rank) continue;
    check_encoded(function, pieces.encoded[static_cast<std::size_t>(rank)], count);
  }
  // Blocks are read before they are written, in order: in place works unless elements grow.
  const bool in_place = owned && values != nullptr && values == pieces.own;
  require(!in_place || size_of(type) <= size_of(pieces.own_type), function,
          "the sum cannot replace the owner's piece where its elements are the larger ones");
}

void check_apart(const char* function, const std::byte* encoded, std::int64_t bytes,
                 const void* values, DataType type, std::int64_t count) {
  require(!overlaps(encoded, bytes, values, count * static_cast<std::int64_t>(size_of(type))),
          function,
          "the buffer of encoded bytes overlaps a buffer of elements; use memory of its own");
}

const KernelTable* find_kernels(const BlockFormat& format, CpuIsa isa) {
  format.validate();
  if (!is_supported(isa)) {
    throw Error(ErrorCode::kUnsupported, "this CPU or build has no kernels for the ISA '" +
                                             std::string(to_string(isa)) +
                                             "'; use the default, which it has");
  }
#if defined(__x86_64__)
  switch (format.element) {
#define AGOQ_FORMAT(enumerator, name, bits, type)                          \
  case ElementFormat::enumerator:                                          \
    if (isa == CpuIsa::kAvx512) return avx512_kernels<type>(format.block); \
    if (isa == CpuIsa::kAvx2) return avx2_kernels<type>(format.block);     \
    break;
#include "format/formats.def"
#undef AGOQ_FORMAT
  }
#endif
  return scalar_kernels(format.element, format.block);
}

EncodedBlocks blocks_at(const std::byte* encoded, const WireLayout& layout, ScaleType type) {
  const auto* codes = reinterpret_cast<const std::uint8_t*>(encoded);
  return {codes, codes + layout.scale_offset(), type};
}

/// Also writes the zero bytes between codes and scales.
MutableEncodedBlocks blocks_at(std::byte* encoded, const WireLayout& layout, ScaleType type) {
  auto* codes = reinterpret_cast<std::uint8_t*>(encoded);
  std::fill(codes + layout.code_bytes(), codes + layout.scale_offset(), std::uint8_t{0});
  return {codes, codes + layout.scale_offset(), type};
}

SumOfPieces sum_of(const Pieces& pieces, const WireLayout& layout, ScaleType type, float factor) {
  return {.encoded = pieces.encoded.data(),
          .scale_offset = layout.scale_offset(),
          .scale_type = type,
          .ranks = static_cast<int>(pieces.encoded.size()),
          .own_rank = pieces.own_rank,
          .own = pieces.own,
          .own_type = pieces.own_type,
          .factor = factor};
}

SingleBlock single_block(const BlockFormat& format, const KernelTable& kernels, std::int64_t count,
                         std::int64_t index) {
  const std::int64_t rest = count - index * format.block;
  return SingleBlock(format, kernels, index,
                     static_cast<int>(std::min<std::int64_t>(format.block, rest)));
}

/// The part of a call's `blocks` that one thread does.
BlockRange part_of(std::int64_t blocks, int part, int parts) {
  return {blocks * part / parts, blocks * (part + 1) / parts};
}

/// Calls work(range) for ranges that make up `count` elements, side by side where that pays.
template <typename Work>
void in_parts(CodecThreads* threads, std::int64_t count, std::int64_t blocks, const Work& work) {
  const std::int64_t most = threads == nullptr ? 1 : threads->threads();
  const int parts = static_cast<int>(std::min(most, count / kLeastPart));
  if (parts < 2) return work(BlockRange{0, blocks});
  threads->run(parts, [&](int part) { work(part_of(blocks, part, parts)); });
}

/// The blocks of a range below `end`, and those from there on.
BlockRange below(BlockRange range, std::int64_t end) {
  return {range.first, std::clamp(end, range.first, range.end)};
}
BlockRange from(BlockRange range, std::int64_t first) {
  return {std::clamp(first, range.first, range.end), range.end};
}

std::shared_ptr<CodecThreads> make_threads(int threads) {
  require(threads >= 1 && threads <= Codec::kMaxThreads, "Codec", "threads is ", threads,
          "; it must be 1 to ", Codec::kMaxThreads);
  return threads == 1 ? nullptr : std::make_shared<CodecThreads>(threads);
}

}  // namespace

Codec::Codec(const BlockFormat& format) : Codec(format, selected_cpu_isa()) {}

Codec::Codec(const BlockFormat& format, CpuIsa isa, int threads)
    : format_(format),
      isa_(isa),
      kernels_(find_kernels(format, isa)),
      threads_(make_threads(threads)) {}

void Codec::encode(const void* values, DataType type, std::int64_t count, std::byte* encoded,
                   const Rounding& rounding) const {
  constexpr auto kFunction = "Codec::encode";
  check_type(kFunction, type);
  check_values(kFunction, values, count);
  check_encoded(kFunction, encoded, count);
  check_rounding(kFunction, rounding);
  if (count == 0) return;
  const WireLayout layout(format_, count);
  check_apart(kFunction, encoded, layout.total_bytes(), values, type, count);
  const MutableEncodedBlocks out = blocks_at(encoded, layout, format_.scale);
  const std::int64_t fast = rounding.stochastic ? 0 : count / format_.block;
  in_parts(threads_.get(), count, layout.blocks(), [&](BlockRange range) {
    kernels_->encode[static_cast<int>(type)](values, below(range, fast), out);
    for (BlockRange rest = from(range, fast); rest.first < rest.end; ++rest.first) {
      single_block(format_, *kernels_, count, rest.first).encode(values, type, out, rounding);
    }
  });
}

void Codec::decode(const std::byte* encoded, std::int64_t count, void* values, DataType type,
                   CacheUse use) const {
  constexpr auto kFunction = "Codec::decode";
  check_type(kFunction, type);
  check_values(kFunction, values, count);
  check_encoded(kFunction, encoded, count);
  if (count == 0) return;
  const WireLayout layout(format_, count);
  const EncodedBlocks in = blocks_at(encoded, layout, format_.scale);
  const std::int64_t whole = count / format_.block;
  const bool streamed = is_streamed(use, values, count * static_cast<std::int64_t>(size_of(type)));
  const auto& decode = streamed ? kernels_->decode_streamed : kernels_->decode;
  in_parts(threads_.get(), count, layout.blocks(), [&](BlockRange range) {
    decode[static_cast<int>(type)](in, below(range, whole), values);
    for (BlockRange rest = from(range, whole); rest.first < rest.end; ++rest.first) {
      single_block(format_, *kernels_, count, rest.first).decode(in, values, type);
    }
  });
}

void Codec::decode_accumulate(const std::byte* encoded, std::int64_t count,
                              float* accumulator) const {
  constexpr auto kFunction = "Codec::decode_accumulate";
  check_values(kFunction, accumulator, count);
  check_encoded(kFunction, encoded, count);
  if (count == 0) return;
  const WireLayout layout(format_, count);
  const EncodedBlocks in = blocks_at(encoded, layout, format_.scale);
  const std::int64_t whole = count / format_.block;
  in_parts(threads_.get(), count, layout.blocks(), [&](BlockRange range) {
    kernels_->accumulate(in, below(range, whole), accumulator);
    for (BlockRange rest = from(range, whole); rest.first < rest.end; ++rest.first) {
      single_block(format_, *kernels_, count, rest.first).accumulate(in, accumulator);
    }
  });
}

int Codec::threads() const { return threads_ == nullptr ? 1 : threads_->threads(); }

CodecThreads* Codec::threads_of(const Pieces& pieces, const void* values, DataType type) const {
  // In place with smaller elements, a block's result lands where an earlier block was read.
  const bool ordered =
      values != nullptr && values == pieces.own && size_of(type) != size_of(pieces.own_type);
  return ordered ? nullptr : threads_.get();
}

void Codec::sum_decode(const Pieces& pieces, std::int64_t count, float factor, void* values,
                       DataType type) const {
  constexpr auto kFunction = "Codec::sum_decode";
  check_type(kFunction, type);
  check_values(kFunction, values, count);
  check_pieces(kFunction, pieces, count, values, type);
  if (count == 0) return;
  const WireLayout layout(format_, count);
  const SumOfPieces sum = sum_of(pieces, layout, format_.scale, factor);
  const std::int64_t whole = count / format_.block;
  in_parts(threads_of(pieces, values, type), count, layout.blocks(), [&](BlockRange range) {
    kernels_->sum_decode[static_cast<int>(type)](sum, below(range, whole), values);
    for (BlockRange rest = from(range, whole); rest.first < rest.end; ++rest.first) {
      single_block(format_, *kernels_, count, rest.first).sum_decode(sum, values, type);
    }
  });
}

void Codec::sum_encode(const Pieces& pieces, std::int64_t count, float factor, std::byte* encoded,
                       void* values, DataType type, const Rounding& rounding) const {
  constexpr auto kFunction = "Codec::sum_encode";
  check_type(kFunction, type);
  check_count(kFunction, count);
  check_encoded(kFunction, encoded, count);
  check_pieces(kFunction, pieces, count, values, type);
  check_rounding(kFunction, rounding);
  if (count == 0) return;
  const WireLayout layout(format_, count);
  const std::int64_t bytes = layout.total_bytes();
  check_replaced(kFunction, pieces.encoded, pieces.own_rank, encoded, bytes);
  check_apart(kFunction, encoded, bytes, pieces.own, pieces.own_type, count);
  check_apart(kFunction, encoded, bytes, values, type, count);
  const SumOfPieces sum = sum_of(pieces, layout, format_.scale, factor);
  const MutableEncodedBlocks out = blocks_at(encoded, layout, format_.scale);
  const std::int64_t fast = rounding.stochastic ? 0 : count / format_.block;
  in_parts(threads_of(pieces, values, type), count, layout.blocks(), [&](BlockRange range) {
    kernels_->sum_encode[static_cast<int>(type)](sum, below(range, fast), out, values);
    for (BlockRange rest = from(range, fast); rest.first < rest.end; ++rest.first) {
      single_block(format_, *kernels_, count, rest.first)
          .sum_encode(sum, out, values, type, rounding);
    }
  });
}

}  // namespace agoq
