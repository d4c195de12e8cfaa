#include "codec/single_block.h"

#include <cstring>

#include "codec/stochastic.h"
#include "codec/values.h"
#include "format/formats.h"

namespace agoq {
namespace {

constexpr int kFloat32 = static_cast<int>(DataType::kFloat32);

}  // namespace

std::int64_t SingleBlock::code_bytes() const {
  return (static_cast<std::int64_t>(length_) * find_format(format_.element)->bits + 7) / 8;
}

std::int64_t SingleBlock::code_offset() const {
  return index_ * (format_.block * find_format(format_.element)->bits / 8);
}

SingleBlock::Encoded SingleBlock::copy_in(EncodedBlocks in) const {
  Encoded block{};
  std::memcpy(block.codes, in.codes + code_offset(), static_cast<std::size_t>(code_bytes()));
  const std::int64_t size = scale_size(format_.scale);
  std::memcpy(block.scale, in.scales + index_ * size, static_cast<std::size_t>(size));
  return block;
}

void SingleBlock::load(const void* values, DataType type, Elements& block) const {
  const std::int64_t first = index_ * format_.block;
  for (int i = 0; i < length_; ++i) block.x[i] = load_value(type, values, first + i);
  for (int i = length_; i < format_.block; ++i) block.x[i] = 0.0f;
}

void SingleBlock::store(const Elements& block, void* values, DataType type) const {
  const std::int64_t first = index_ * format_.block;
  for (int i = 0; i < length_; ++i) store_value(type, values, first + i, block.x[i]);
}

void SingleBlock::encode(const Elements& block, MutableEncodedBlocks out,
                         const Rounding& rounding) const {
  Encoded encoded;
  const MutableEncodedBlocks one{encoded.codes, encoded.scale, format_.scale};
  if (rounding.stochastic) {
    encode_stochastic(format_.element, block.x, format_.block, rounding,
                      rounding.first_element + index_ * format_.block, one);
  } else {
    kernels_.encode[kFloat32](block.x, {0, 1}, one);
  }
  std::memcpy(out.codes + code_offset(), encoded.codes, static_cast<std::size_t>(code_bytes()));
  const std::int64_t size = scale_size(format_.scale);
  std::memcpy(out.scales + index_ * size, encoded.scale, static_cast<std::size_t>(size));
}

void SingleBlock::encode(const void* values, DataType type, MutableEncodedBlocks out,
                         const Rounding& rounding) const {
  Elements block;
  load(values, type, block);
  encode(block, out, rounding);
}

void SingleBlock::decode(EncodedBlocks in, void* values, DataType type) const {
  const Encoded encoded = copy_in(in);
  Elements block;
  kernels_.decode[kFloat32]({encoded.codes, encoded.scale, format_.scale}, {0, 1}, block.x);
  store(block, values, type);
}

void SingleBlock::accumulate(EncodedBlocks in, float* accumulator) const {
  const Encoded encoded = copy_in(in);
  Elements block;
  load(accumulator, DataType::kFloat32, block);
  kernels_.accumulate({encoded.codes, encoded.scale, format_.scale}, {0, 1}, block.x);
  store(block, accumulator, DataType::kFloat32);
}

void SingleBlock::sum(const SumOfPieces& pieces, Elements& block) const {
  // -0 is what leaves every first piece as it is, a -0 of the owner's too.
  for (float& x : block.x) x = -0.0f;
  const std::int64_t first = index_ * format_.block;
  for (int rank = 0; rank < pieces.ranks; ++rank) {
    if (rank == pieces.own_rank) {
      for (int i = 0; i < length_; ++i) {
        block.x[i] = add(block.x[i], load_value(pieces.own_type, pieces.own, first + i));
      }
      continue;
    }
    const auto* codes = reinterpret_cast<const std::uint8_t*>(pieces.encoded[rank]);
    const Encoded encoded = copy_in({codes, codes + pieces.scale_offset, pieces.scale_type});
    kernels_.accumulate({encoded.codes, encoded.scale, format_.scale}, {0, 1}, block.x);
  }
  for (int i = 0; i < length_; ++i) {
    if (pieces.factor != 1.0f) block.x[i] = mul(block.x[i], pieces.factor);
    block.x[i] = canonical(block.x[i]);
  }
  // A piece with a NaN scale has made NaN of the padding too.
  for (int i = length_; i < format_.block; ++i) block.x[i] = 0.0f;
}

void SingleBlock::sum_decode(const SumOfPieces& pieces, void* values, DataType type) const {
  Elements block;
  sum(pieces, block);
  store(block, values, type);
}

void SingleBlock::sum_encode(const SumOfPieces& pieces, MutableEncodedBlocks out, void* values,
                             DataType type, const Rounding& rounding) const {
  Elements block;
  sum(pieces, block);
  encode(block, out, rounding);
  if (values != nullptr) decode({out.codes, out.scales, out.scale_type}, values, type);
}

}  // namespace agoq
