// Stochastic rounding: unbiased, repeatable, and a function of the stated fields only.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <utility>

#include "agoqcomm/codec.h"
#include "codec_testing.h"
#include "element_oracle.h"
#include "format/philox.h"

namespace agoq::testing {
namespace {

constexpr auto kFloat32 = DataType::kFloat32;

TEST(Philox, GivesItsAuthorsKnownAnswers) {
  const std::uint32_t ones = 0xffffffffu;
  const PhiloxBlock all_ones = philox4x32({{ones, ones, ones, ones}}, ones, ones);
  const std::uint32_t expected_ones[] = {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu};
  const PhiloxBlock pi =
      philox4x32({{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}}, 0xa4093822u, 0x299f31d0u);
  const std::uint32_t expected_pi[] = {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(all_ones.word[i], expected_ones[i]);
    EXPECT_EQ(pi.word[i], expected_pi[i]);
  }
}

TEST(Philox, UniformsLieInTheHalfOpenUnitInterval) {
  EXPECT_EQ(to_uniform(0), 0.0f);
  EXPECT_EQ(to_uniform(0xffffffffu), 1.0f - 0x1p-24f);
}

Rounding rounding(std::uint32_t call = 0) {
  return {.stochastic = true, .seed = 0x123456789abcdefu, .call = call, .rank = 3, .stage = 1};
}

class StochasticFormats : public ::testing::TestWithParam<ElementFormat> {
 protected:
  Codec codec(int block = 128, ScaleType scale = ScaleType::kBfloat16) const {
    return Codec({.element = GetParam(), .block = block, .scale = scale});
  }
  double number_at(const Bytes& encoded, std::int64_t i) const {
    const auto number =
        oracle_.numbers[static_cast<std::size_t>(code_at(encoded, i, oracle_.bits))];
    EXPECT_TRUE(number.has_value()) << "a code that encoders must not write";
    return number.value_or(NAN);
  }
  /// The numbers next to `y` that codes stand for, below and above; twice `y` where one is there.
  std::pair<double, double> neighbours(double y) const {
    double below = -oracle_.largest;
    double above = oracle_.largest;
    for (const std::optional<double>& number : oracle_.numbers) {
      if (number && *number <= y) below = std::max(below, *number);
      if (number && *number >= y) above = std::min(above, *number);
    }
    return {below, above};
  }

  const ElementOracle oracle_ = element_oracle(GetParam());
};

TEST_P(StochasticFormats, IsUnbiasedOverManyCalls) {
  constexpr int kTrials = 20000;
  const Codec some = codec(32);
  // A scale of exactly 1; distances to the code below from none to nearly all, in every binade.
  std::vector<float> x(32);
  for (std::size_t i = 0; i < 32; ++i) {
    const double part = static_cast<double>(i * i) / 1024 * (i % 2 == 0 ? 1 : -1);
    x[i] = static_cast<float>(part * oracle_.largest);
  }
  x[0] = static_cast<float>(oracle_.largest);
  std::vector<double> sum(32);
  for (std::uint32_t trial = 0; trial < kTrials; ++trial) {
    const Bytes encoded = encode(some, to_bytes(x), kFloat32, rounding(trial));
    for (std::size_t i = 0; i < 32; ++i) sum[i] += number_at(encoded, static_cast<std::int64_t>(i));
  }
  for (std::size_t i = 0; i < 32; ++i) {
    const auto [below, above] = neighbours(x[i]);
    const double deviation = std::sqrt((x[i] - below) * (above - x[i]) / kTrials);
    EXPECT_LE(std::abs(sum[i] / kTrials - x[i]), 5 * deviation) << x[i];
  }
}

TEST_P(StochasticFormats, TakesOnlyTheTwoNeighboursAndStaysInRange) {
  const Codec some = codec(64, ScaleType::kFloat32);
  for (unsigned seed = 0; seed < 200; ++seed) {
    const Bytes input = make_input(Family::kNormal, kFloat32, 64, seed);
    const std::vector<float> x = to_floats(input, kFloat32);
    const Bytes encoded = encode(some, input, kFloat32, rounding(seed));
    float scale;
    std::memcpy(&scale, encoded.data() + encoded.size() - 4, 4);
    for (std::size_t i = 0; i < 64; ++i) {
      const double y = x[i] / static_cast<double>(scale);
      const auto [below, above] = neighbours(y);
      const double number = number_at(encoded, static_cast<std::int64_t>(i));
      // A quotient so near a number that its rounding crosses it may take the next one.
      EXPECT_TRUE(number == below || number == above ||
                  std::min(y - below, above - y) < oracle_.largest * 0x1p-22)
          << y << " became " << number;
    }
  }
}

TEST_P(StochasticFormats, KeepsTheContractForZerosAndNan) {
  const Bytes zeros = make_input(Family::kZeros, kFloat32, 300, 1);
  EXPECT_EQ(encode(codec(), zeros, kFloat32, rounding()), encode(codec(), zeros, kFloat32));
  std::vector<float> x(300, 1.0f);
  x[5] = NAN;
  x[290] = INFINITY;
  const Bytes encoded = encode(codec(), to_bytes(x), kFloat32, rounding());
  const std::vector<float> y = decode(codec(), encoded, 300);
  EXPECT_EQ(bits(y[0]), 0x7fc00000u);
  EXPECT_FALSE(std::isnan(y[128]));
  EXPECT_EQ(bits(y[299]), 0x7fc00000u);
}

TEST_P(StochasticFormats, IsTheSameOnEveryIsaAndForEveryType) {
  const BlockFormat format = codec().format();
  for (const DataType type : kTypes) {
    const Bytes input = make_input(Family::kEveryExponent, type, 5000, 2);
    const Bytes expected = encode(Codec(format, CpuIsa::kScalar), input, type, rounding());
    for (const CpuIsa isa : supported_isas()) {
      EXPECT_EQ(encode(Codec(format, isa), input, type, rounding()), expected) << to_string(isa);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Format, StochasticFormats, ::testing::ValuesIn(kElements),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(Stochastic, RepeatsForEqualFieldsAndDiffersForOthers) {
  const Codec codec({});
  const Bytes input = make_input(Family::kNormal, kFloat32, 1024, 1);
  const auto encoded_with = [&](const Rounding& r) { return encode(codec, input, kFloat32, r); };
  const Bytes base = encoded_with(rounding());
  EXPECT_EQ(encoded_with(rounding()), base);
  Rounding other = rounding();
  other.seed ^= std::uint64_t{1} << 40;
  EXPECT_NE(encoded_with(other), base);
  other = rounding();
  other.call = 1;
  EXPECT_NE(encoded_with(other), base);
  other = rounding();
  other.rank = 4;
  EXPECT_NE(encoded_with(other), base);
  other = rounding();
  other.stage = 2;
  EXPECT_NE(encoded_with(other), base);
  other = rounding();
  other.first_element = std::int64_t{1} << 35;
  EXPECT_NE(encoded_with(other), base);
}

TEST(Stochastic, DoesNotDependOnHowABufferIsCutIntoSegments) {
  const Codec codec({});
  constexpr std::size_t kCount = 1000;
  const Bytes input = make_input(Family::kNormal, kFloat32, kCount, 1);
  const Bytes whole = encode(codec, input, kFloat32, rounding());
  for (std::size_t first = 0; first < kCount; first += 384) {
    const std::size_t n = std::min<std::size_t>(384, kCount - first);
    Rounding at = rounding();
    at.first_element = static_cast<std::int64_t>(first);
    const Bytes segment(input.begin() + static_cast<std::ptrdiff_t>(4 * first),
                        input.begin() + static_cast<std::ptrdiff_t>(4 * (first + n)));
    const Bytes encoded = encode(codec, segment, kFloat32, at);
    EXPECT_TRUE(std::equal(encoded.begin(), encoded.begin() + static_cast<std::ptrdiff_t>(n),
                           whole.begin() + static_cast<std::ptrdiff_t>(first)));
  }
}

TEST(Stochastic, FollowsItsFormulaFromAnyFirstElement) {
  const Codec codec({.block = 32});
  std::vector<float> x(32, 0.75f);
  x[0] = 127.0f;
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{3}, (std::int64_t{1} << 34) + 5}) {
    Rounding at = rounding(9);
    at.first_element = first;
    const Bytes encoded = encode(codec, to_bytes(x), kFloat32, at);
    for (std::int64_t i = 1; i < 32; ++i) {
      const auto element = static_cast<std::uint64_t>(first + i);
      const PhiloxBlock counter{{static_cast<std::uint32_t>(element / 4),
                                 static_cast<std::uint32_t>(element / 4 >> 32), at.call,
                                 at.rank + at.stage * 0x1000000u}};
      const PhiloxBlock words = philox4x32(counter, static_cast<std::uint32_t>(at.seed),
                                           static_cast<std::uint32_t>(at.seed >> 32));
      const double uniform = (words.word[element % 4] >> 8) / 16777216.0;
      EXPECT_EQ(static_cast<std::int8_t>(encoded[static_cast<std::size_t>(i)]),
                uniform < 0.75 ? 1 : 0);
    }
  }
}

TEST(Stochastic, OfASumIsThatOfTheSummedNumbers) {
  const Codec codec({});
  constexpr std::int64_t kCount = 1000;
  const Bytes own = make_input(Family::kNormal, DataType::kBfloat16, kCount, 1);
  const Bytes other = encode(codec, make_input(Family::kNormal, kFloat32, kCount, 2), kFloat32);
  const std::byte* pieces[] = {other.data(), nullptr};
  const Pieces all{pieces, own.data(), DataType::kBfloat16, 1};
  Bytes sum(4 * kCount);
  codec.sum_decode(all, kCount, 0.5f, sum.data(), kFloat32);
  const Bytes expected = encode(codec, sum, kFloat32, rounding());
  Bytes encoded(expected.size());
  codec.sum_encode(all, kCount, 0.5f, encoded.data(), sum.data(), kFloat32, rounding());
  EXPECT_EQ(encoded, expected);
  EXPECT_EQ(sum, to_bytes(decode(codec, expected, kCount)));
}

}  // namespace
}  // namespace agoq::testing
