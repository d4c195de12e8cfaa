// Rows: encodings, sums and epilogues of every ISA against plain loops, byte for byte.
#include "agoqcomm/row_codec.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "contract_oracle.h"
#include "expect_error.h"
#include "row_oracle.h"

namespace agoq::testing {
namespace {

/// Shorter than a vector, one block, ragged, several runs of squares.
constexpr std::int64_t kWidths[] = {1, 7, 31, 128, 200, 333, 1000, 1024, 1029, 2500};

std::vector<float> make_weight(std::int64_t width) {
  std::vector<float> weight;
  for (std::int64_t i = 0; i < width; ++i) {
    weight.push_back(0.5f + static_cast<float>(i % 17) / 16.0f);
  }
  return weight;
}

std::string trace(CpuIsa isa, DataType type, std::int64_t width) {
  return std::string(to_string(isa)) + " " + std::string(to_string(type)) + " width " +
         std::to_string(width);
}

Bytes encode_rows(const RowCodec& codec, const Bytes& values, DataType type, RowShape shape) {
  GuardedBuffer encoded(RowLayout(codec.format(), shape).total_bytes(), 1);
  codec.encode(values.data(), type, shape, encoded.data());
  encoded.expect_intact();
  return encoded.contents();
}

TEST(RowLayout, IsTheFlatOneWhereTheBlockDividesTheWidth) {
  const BlockFormat format;
  for (const std::int64_t rows : {0, 1, 5}) {
    const RowLayout layout(format, {rows, 384});
    const WireLayout flat(format, rows * 384);
    EXPECT_EQ(layout.scale_offset(), flat.scale_offset());
    EXPECT_EQ(layout.total_bytes(), flat.total_bytes());
  }
}

TEST(RowLayout, StartsBlocksAnewWithEachRow) {
  const RowLayout layout(BlockFormat{}, {3, 129});
  EXPECT_EQ(layout.row_blocks(), 2);
  EXPECT_EQ(layout.row_code_bytes(), 129);
  EXPECT_EQ(layout.scale_offset(), 388);  // 387, aligned to a scale
  EXPECT_EQ(layout.total_bytes(), 388 + 3 * 2 * 2);
}

TEST(RowLayout, RefusesShapesWithoutRows) {
  EXPECT_THROW(RowLayout(BlockFormat{}, {-1, 8}), Error);
  EXPECT_THROW(RowLayout(BlockFormat{}, {1, 0}), Error);
  EXPECT_THROW(RowLayout(BlockFormat{}, {1, kMaxRowWidth + 1}), Error);
}

TEST(RowCodec, EncodesAndDecodesEachRowAsABufferOfItsOwn) {
  constexpr std::int64_t kRows = 5;
  for (const CpuIsa isa : supported_isas()) {
    for (const ScaleType scale : kScaleTypes) {
      BlockFormat format;
      format.scale = scale;
      const Codec codec(format, isa);
      const RowCodec rows(codec);
      for (const DataType type : kTypes) {
        for (const std::int64_t width : kWidths) {
          SCOPED_TRACE(trace(isa, type, width));
          for (const Family family : {Family::kNormal, Family::kSpecials}) {
            const Bytes values = make_input(family, type, kRows * width, 1);
            const Bytes encoded = encode_rows(rows, values, type, {kRows, width});
            EXPECT_TRUE(encoded == oracle_encode_rows(codec, values, type, width));
            GuardedBuffer decoded(kRows * width * size_of(type), 3);
            rows.decode(encoded.data(), {kRows, width}, decoded.data(), type);
            decoded.expect_intact();
            // A row alone decodes to the same.
            const std::int64_t bytes = width * static_cast<std::int64_t>(size_of(type));
            for (std::int64_t row = 0; row < kRows; ++row) {
              const Bytes of_row = slice(values, type, row * width, width);
              Bytes expected(static_cast<std::size_t>(bytes));
              codec.decode(encode(codec, of_row, type).data(), width, expected.data(), type);
              EXPECT_TRUE(std::memcmp(expected.data(), decoded.data() + row * bytes, bytes) == 0);
            }
          }
        }
      }
    }
  }
}

TEST(RowCodec, StochasticRowsAreTheFlatOnesWhereTheBlockDividesTheWidth) {
  const Codec codec(BlockFormat{});
  const Bytes values = make_input(Family::kNormal, DataType::kFloat32, 4 * 256, 3);
  Rounding rounding;
  rounding.stochastic = true;
  rounding.seed = 7;
  rounding.first_element = 512;
  Bytes encoded(static_cast<std::size_t>(RowLayout(codec.format(), {4, 256}).total_bytes()));
  RowCodec(codec).encode(values.data(), DataType::kFloat32, {4, 256}, encoded.data(), rounding);
  EXPECT_TRUE(encoded == encode(codec, values, DataType::kFloat32, rounding));
}

/// A sum of three ranks' rows with everything that can follow it.
struct Case {
  Codec codec;
  DataType type;
  RowShape shape;
  std::vector<Bytes> inputs;  // By rank.
  Bytes residual;
  std::vector<float> weight;
  std::vector<Bytes> encoded;
  static constexpr int kOwner = 1;

  Case(const Codec& with, DataType of_type, RowShape of_shape, Family family)
      : codec(with),
        type(of_type),
        shape(of_shape),
        inputs(make_inputs(family, type, shape.rows * shape.width, 3, 11)),
        residual(make_input(Family::kNormal, type, shape.rows * shape.width, 77)),
        weight(make_weight(shape.width)) {
    for (const Bytes& input : inputs) {
      encoded.push_back(encode_rows(RowCodec(codec), input, type, shape));
    }
  }

  /// fp32 sum of one row in rank order.
  std::vector<float> sum_of(std::int64_t row, float factor) const {
    std::vector<Bytes> pieces;
    for (const Bytes& input : inputs) {
      pieces.push_back(slice(input, type, row * shape.width, shape.width));
    }
    std::vector<float> sum = oracle_sum(codec, type, pieces, kOwner, factor).sum;
    for (float& x : sum) x = canonical(x);
    return sum;
  }
};

struct Outputs {
  Bytes sums;
  Bytes normed;
  Bytes encoded;
};

Outputs run(const Case& of, float factor, bool residual, bool norm) {
  const RowLayout layout(of.codec.format(), of.shape);
  const auto bytes = static_cast<std::int64_t>(of.inputs[0].size());
  GuardedBuffer sums(bytes, 2), normed(bytes, 2), encoded(layout.total_bytes());
  std::vector<const std::byte*> pieces;
  for (const Bytes& piece : of.encoded) pieces.push_back(piece.data());
  RowEpilogue epilogue;
  if (residual) epilogue.residual = of.residual.data();
  if (norm) epilogue.norm = RmsNorm{of.weight.data(), 1e-5f};
  if (norm) epilogue.normed = normed.data();
  epilogue.encoded = {encoded.data(), of.shape.rows, 0};
  RowCodec(of.codec).sum_decode(
      {.encoded = pieces, .own = of.inputs[1].data(), .own_type = of.type, .own_rank = 1}, of.shape,
      factor, sums.data(), of.type, epilogue);
  sums.expect_intact();
  normed.expect_intact();
  encoded.expect_intact();
  return {sums.contents(), norm ? normed.contents() : Bytes{}, encoded.contents()};
}

void expect_rows(const Case& of, const Outputs& outputs, float factor, bool residual, bool norm) {
  Bytes last;
  for (std::int64_t row = 0; row < of.shape.rows; ++row) {
    const std::int64_t width = of.shape.width;
    std::vector<float> added;
    if (residual) added = to_floats(slice(of.residual, of.type, row * width, width), of.type);
    std::optional<RmsNorm> with;
    if (norm) with = RmsNorm{of.weight.data(), 1e-5f};
    const OracleRow expected = oracle_row(of.sum_of(row, factor), added, of.type, with);
    EXPECT_TRUE(slice(outputs.sums, of.type, row * width, width) ==
                to_type(expected.sums, of.type));
    if (norm) {
      EXPECT_TRUE(slice(outputs.normed, of.type, row * width, width) ==
                  to_type(expected.normed, of.type));
    }
    const Bytes encodes = to_type(norm ? expected.normed : expected.sums, of.type);
    last.insert(last.end(), encodes.begin(), encodes.end());
  }
  EXPECT_TRUE(outputs.encoded == oracle_encode_rows(of.codec, last, of.type, of.shape.width));
}

TEST(RowCodec, SumsAndFinishesRowsAsPlainLoopsDo) {
  for (const CpuIsa isa : supported_isas()) {
    const Codec codec(BlockFormat{}, isa);
    for (const DataType type : kTypes) {
      for (const std::int64_t width : kWidths) {
        for (const Family family : {Family::kNormal, Family::kSpecials}) {
          SCOPED_TRACE(trace(isa, type, width));
          const Case of(codec, type, {3, width}, family);
          for (const float factor : {1.0f, 0.5f}) {
            for (const bool residual : {false, true}) {
              for (const bool norm : {false, true}) {
                expect_rows(of, run(of, factor, residual, norm), factor, residual, norm);
              }
            }
          }
        }
      }
    }
  }
}

TEST(RowCodec, SumsAndFinishesRowsOfEveryFormat) {
  for (const CpuIsa isa : supported_isas()) {
    for (const ElementFormat element : kElements) {
      BlockFormat format;
      format.element = element;
      for (const std::int64_t width : {31, 333, 1024}) {
        SCOPED_TRACE(format.name() + " " + trace(isa, DataType::kBfloat16, width));
        const Case of(Codec(format, isa), DataType::kBfloat16, {3, width}, Family::kSpecials);
        for (std::size_t rank = 0; rank < of.inputs.size(); ++rank) {
          EXPECT_TRUE(of.encoded[rank] ==
                      oracle_encode_rows(of.codec, of.inputs[rank], of.type, width));
        }
        expect_rows(of, run(of, 1.0f, true, true), 1.0f, true, true);
      }
    }
  }
}

TEST(RowCodec, NormIsCloseToOneInFp64) {
  for (const std::int64_t width : kWidths) {
    const Bytes values = make_input(Family::kNormal, DataType::kFloat32, width, 5);
    const std::vector<float> x = to_floats(values, DataType::kFloat32);
    std::vector<float> normed(static_cast<std::size_t>(width));
    RowEpilogue epilogue;
    epilogue.norm = RmsNorm{nullptr, 1e-5f};
    epilogue.normed = normed.data();
    RowCodec(Codec(BlockFormat{}))
        .apply(values.data(), DataType::kFloat32, {1, width}, nullptr, epilogue);
    double squares = 0;
    for (const float value : x) squares += static_cast<double>(value) * value;
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5f);
    // A square and its at most 4 + 8 + 2 additions round, and the root halves that; then mean,
    // epsilon, root, reciprocal and product.
    for (std::int64_t i = 0; i < width; ++i) {
      EXPECT_NEAR(normed[i], x[i] * inverse, std::abs(x[i] * inverse) * (7.5 + 5) * 0x1p-24);
    }
  }
}

TEST(RowCodec, ApplyIsTheEpilogueOfASumOfOnePiece) {
  const Codec codec(BlockFormat{});
  for (const DataType type : kTypes) {
    const Case of(codec, type, {4, 333}, Family::kNormal);
    Bytes sums(of.residual.size()), again(of.residual), normed(of.residual.size()),
        normed_again(of.residual.size());
    RowEpilogue epilogue;
    epilogue.residual = of.residual.data();
    epilogue.norm = RmsNorm{of.weight.data(), 1e-5f};
    epilogue.normed = normed.data();
    const std::byte* const none = nullptr;
    RowCodec(codec).sum_decode(
        {.encoded = {&none, 1}, .own = of.inputs[0].data(), .own_type = type, .own_rank = 0},
        of.shape, 1.0f, sums.data(), type, epilogue);
    // In place of the residual.
    epilogue.residual = again.data();
    epilogue.normed = normed_again.data();
    RowCodec(codec).apply(of.inputs[0].data(), type, of.shape, again.data(), epilogue);
    EXPECT_TRUE(sums == again);
    EXPECT_TRUE(normed == normed_again);
  }
}

TEST(RowCodec, ARowWithANanIsNanAndTheOthersAreNot) {
  const Codec codec(BlockFormat{});
  std::vector<float> x(3 * 300, 1.0f);
  x[310] = NAN;
  std::vector<float> normed(x.size());
  RowEpilogue epilogue;
  epilogue.norm = RmsNorm{};
  epilogue.normed = normed.data();
  RowCodec(codec).apply(x.data(), DataType::kFloat32, {3, 300}, nullptr, epilogue);
  for (std::size_t i = 0; i < normed.size(); ++i) {
    EXPECT_EQ(std::isnan(normed[i]), i / 300 == 1) << i;
    if (std::isnan(normed[i])) {
      EXPECT_EQ(bits(normed[i]), kCanonicalNanBits);
    }
  }
}

TEST(RowCodec, EncodesIntoAPartOfALargerBuffer) {
  const Codec codec(BlockFormat{});
  const Bytes values = make_input(Family::kNormal, DataType::kBfloat16, 7 * 131, 9);
  const Bytes whole = encode_rows(RowCodec(codec), values, DataType::kBfloat16, {7, 131});
  Bytes parts(whole.size(), std::byte{0x55});
  for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 3}, {3, 4}}) {
    RowEpilogue epilogue;
    epilogue.encoded = {parts.data(), 7, first};
    RowCodec(codec).apply(values.data() + first * 131 * 2, DataType::kBfloat16, {count, 131},
                          nullptr, epilogue);
  }
  EXPECT_TRUE(parts == whole);
}

TEST(RowCodec, SumEncodeIsThatOfEachRow) {
  for (const CpuIsa isa : supported_isas()) {
    const Codec codec(BlockFormat{}, isa);
    for (const std::int64_t width : {31, 256, 333}) {
      const Case of(codec, DataType::kBfloat16, {3, width}, Family::kNormal);
      std::vector<const std::byte*> pieces;
      for (const Bytes& piece : of.encoded) pieces.push_back(piece.data());
      GuardedBuffer encoded(RowLayout(codec.format(), of.shape).total_bytes());
      Bytes values(of.inputs[0].size());
      RowCodec(codec).sum_encode(
          {.encoded = pieces, .own = of.inputs[1].data(), .own_type = of.type, .own_rank = 1},
          of.shape, 0.5f, encoded.data(), values.data(), of.type);
      encoded.expect_intact();
      Bytes sums;
      for (std::int64_t row = 0; row < of.shape.rows; ++row) {
        const Bytes sum = to_bytes(of.sum_of(row, 0.5f));
        sums.insert(sums.end(), sum.begin(), sum.end());
      }
      EXPECT_TRUE(encoded.contents() == oracle_encode_rows(codec, sums, DataType::kFloat32, width));
      Bytes decoded(values.size());
      RowCodec(codec).decode(encoded.data(), of.shape, decoded.data(), of.type);
      EXPECT_TRUE(values == decoded);
    }
  }
}

TEST(RowCodec, ThreadsDoNotShowInTheBytes) {
  const Codec alone(BlockFormat{}, selected_cpu_isa());
  const Codec together(BlockFormat{}, selected_cpu_isa(), 3);
  const RowShape shape{37, 1500};
  const Case one(alone, DataType::kBfloat16, shape, Family::kNormal);
  const Case three(together, DataType::kBfloat16, shape, Family::kNormal);
  const Outputs expected = run(one, 1.0f, true, true);
  const Outputs outputs = run(three, 1.0f, true, true);
  EXPECT_TRUE(one.encoded == three.encoded);
  EXPECT_TRUE(outputs.sums == expected.sums);
  EXPECT_TRUE(outputs.normed == expected.normed);
  EXPECT_TRUE(outputs.encoded == expected.encoded);
}

TEST(RowCodec, SaysWhatIsWrongWithItsArguments) {
  const RowCodec codec{Codec(BlockFormat{})};
  std::vector<float> x(256);
  std::vector<std::byte> encoded(1024);
  const DataType type = DataType::kFloat32;
  expect_invalid("cannot be encoded",
                 [&] { codec.encode(x.data(), DataType::kFloat64, {1, 128}, encoded.data()); });
  expect_invalid("a buffer is null",
                 [&] { codec.encode(nullptr, type, {1, 128}, encoded.data()); });
  expect_invalid("no output", [&] { codec.apply(x.data(), type, {1, 128}, nullptr, {}); });
  expect_invalid("but no norm", [&] {
    RowEpilogue epilogue;
    epilogue.normed = x.data();
    codec.apply(x.data(), type, {1, 128}, nullptr, epilogue);
  });
  expect_invalid("do not lie within", [&] {
    RowEpilogue epilogue;
    epilogue.encoded = {encoded.data(), 1, 1};
    codec.apply(x.data(), type, {1, 128}, nullptr, epilogue);
  });
  expect_invalid("no pieces", [&] { codec.sum_decode({}, {1, 128}, 1.0f, x.data(), type); });
}

}  // namespace
}  // namespace agoq::testing
