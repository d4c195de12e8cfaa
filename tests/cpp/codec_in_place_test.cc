// A sum that is encoded into the memory of one of its pieces.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "agoqcomm/codec.h"
#include "codec_testing.h"
#include "expect_error.h"

namespace agoq::testing {
namespace {

/// Two encoded pieces, and numbers at `own_rank` among them or none at -1.
struct Summed {
  const Codec& codec;
  std::int64_t count;
  DataType type;
  int own_rank;
  Rounding rounding;
  Bytes own, first, second;

  static Summed make(const Codec& codec, std::int64_t count, DataType type, int own_rank,
                     const Rounding& rounding) {
    const auto input = [&](Family family, unsigned seed) {
      return make_input(family, type, count, seed);
    };
    return {codec,
            count,
            type,
            own_rank,
            rounding,
            input(Family::kNormal, 1),
            encode(codec, input(Family::kSpecials, 2), type),
            encode(codec, input(Family::kMixedExponents, 3), type)};
  }

  /// Encoded bytes, then what they decode to where it was asked for.
  Bytes sum(const std::byte* a, const std::byte* b, std::byte* to, bool with_values) const {
    std::vector<const std::byte*> pieces = {a, b};
    if (own_rank >= 0) pieces.insert(pieces.begin() + own_rank, nullptr);
    Bytes values(with_values ? own.size() : 0);
    codec.sum_encode({pieces, own_rank < 0 ? nullptr : own.data(), type, own_rank}, count, 0.5f, to,
                     with_values ? values.data() : nullptr, type, rounding);
    Bytes all(to, to + first.size());
    all.insert(all.end(), values.begin(), values.end());
    return all;
  }

  void expect_same_in_place(bool with_values) const {
    const auto bytes = static_cast<std::int64_t>(first.size());
    Bytes apart(first.size());
    const Bytes expected = sum(first.data(), second.data(), apart.data(), with_values);
    GuardedBuffer memory(bytes);
    std::memcpy(memory.data(), first.data(), first.size());
    EXPECT_EQ(sum(memory.data(), second.data(), memory.data(), with_values), expected);
    memory.expect_intact();
    std::memcpy(memory.data(), second.data(), second.size());
    EXPECT_EQ(sum(first.data(), memory.data(), memory.data(), with_values), expected);
    memory.expect_intact();
  }
};

class CodecInPlace : public ::testing::TestWithParam<ElementFormat> {};

TEST_P(CodecInPlace, ASumIsEncodedIntoThePieceItReplaces) {
  for (const CpuIsa isa : supported_isas()) {
    for (const int block : {32, 128, 512}) {
      for (const ScaleType scale : kScaleTypes) {
        const Codec codec(BlockFormat{GetParam(), block, scale}, isa);
        // Less than a block, four blocks at a time, some after those, and short last ones.
        for (const int count : {1, block - 1, block, 4 * block + 5, 7 * block, 9 * block + 31}) {
          for (const DataType type : kTypes) {
            for (int own_rank = -1; own_rank <= 2; ++own_rank) {
              SCOPED_TRACE(codec.format().name() + " " + std::string(to_string(isa)) + " " +
                           std::string(to_string(type)) + ", " + std::to_string(count) +
                           " elements, owner " + std::to_string(own_rank));
              for (const bool with_values : {false, true}) {
                Summed::make(codec, count, type, own_rank, {}).expect_same_in_place(with_values);
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(CodecInPlace, AlsoWithStochasticRounding) {
  const Codec codec(BlockFormat{GetParam()});
  for (const int own_rank : {-1, 1}) {
    Summed::make(codec, 700, DataType::kBfloat16, own_rank, {.stochastic = true, .seed = 9})
        .expect_same_in_place(true);
  }
}

TEST_P(CodecInPlace, AlsoByThreads) {
  const Codec codec(BlockFormat{GetParam()}, selected_cpu_isa(), 3);
  Summed::make(codec, 100'000 + 77, DataType::kFloat32, 0, {}).expect_same_in_place(true);
}

TEST_P(CodecInPlace, OnePieceMayBeAddedToItself) {
  const Codec codec(BlockFormat{GetParam()});
  const Summed summed = Summed::make(codec, 1000, DataType::kFloat32, 1, {});
  Bytes apart(summed.first.size());
  const Bytes expected = summed.sum(summed.first.data(), summed.first.data(), apart.data(), false);
  Bytes memory = summed.first;
  EXPECT_EQ(summed.sum(memory.data(), memory.data(), memory.data(), false), expected);
}

TEST_P(CodecInPlace, APartOfAPieceIsRefused) {
  const Codec codec(BlockFormat{GetParam()});
  const Summed summed = Summed::make(codec, 1000, DataType::kFloat32, -1, {});
  const std::size_t bytes = summed.first.size();
  alignas(64) std::byte memory[8192] = {};
  const std::size_t step = bytes / 4 * 4;  // the last that still overlaps, or the first that fits
  for (const std::size_t apart : {std::size_t{4}, step - 4}) {
    expect_invalid("overlaps a part of piece 1; it may be all of a piece's memory",
                   [&] { summed.sum(summed.first.data(), memory + apart, memory, false); });
    expect_invalid("overlaps a part of piece 0",
                   [&] { summed.sum(memory, summed.second.data(), memory + apart, false); });
  }
  summed.sum(memory, summed.second.data(), memory + (bytes + 3) / 4 * 4, false);
  const std::byte* piece[] = {nullptr, summed.first.data()};
  expect_invalid("overlaps a buffer of elements", [&] {
    codec.sum_encode({piece, memory, DataType::kFloat32, 0}, 1000, 1.0f, memory, nullptr,
                     DataType::kFloat32);
  });
  expect_invalid("overlaps a buffer of elements",
                 [&] { codec.encode(memory, DataType::kFloat32, 1000, memory + 3996); });
}

INSTANTIATE_TEST_SUITE_P(Format, CodecInPlace, ::testing::ValuesIn(kElements),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace agoq::testing
