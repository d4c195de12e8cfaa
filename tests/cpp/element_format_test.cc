// Every code of every element format, every bf16 number, and how large the error is.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <tuple>

#include "agoqcomm/codec.h"
#include "codec_testing.h"
#include "element_oracle.h"

namespace agoq::testing {
namespace {

class ElementFormats : public ::testing::TestWithParam<std::tuple<ElementFormat, CpuIsa>> {
 protected:
  ElementFormat element() const { return std::get<0>(GetParam()); }
  Codec codec(int block = 128, ScaleType scale = ScaleType::kBfloat16) const {
    return Codec({.element = element(), .block = block, .scale = scale}, std::get<1>(GetParam()));
  }
  const ElementOracle oracle_ = element_oracle(element());
};

TEST_P(ElementFormats, EveryCodeStandsForItsNumber) {
  // Each of the codes in each of the places of 1024, by a block of random codes that has them all.
  std::mt19937 random(3);
  const Codec some = codec(1024, ScaleType::kFloat32);
  for (const float scale : {1.0f, 0x1p-99f, 0.1f, 3e37f}) {
    for (int trial = 0; trial < 20; ++trial) {
      Bytes encoded(static_cast<std::size_t>(WireLayout(some.format(), 1024).total_bytes()));
      for (std::byte& b : encoded) b = static_cast<std::byte>(random());
      std::memcpy(encoded.data() + encoded.size() - 4, &scale, 4);
      const std::vector<float> y = decode(some, encoded, 1024);
      for (std::int64_t i = 0; i < 1024; ++i) {
        const int code = code_at(encoded, i, oracle_.bits);
        const double number = oracle_.decoded[static_cast<std::size_t>(code)];
        ASSERT_EQ(bits(y[static_cast<std::size_t>(i)]), bits(static_cast<float>(number) * scale))
            << "code " << code;
      }
    }
  }
}

TEST_P(ElementFormats, EveryBfloat16TakesTheNearestCode) {
  // An element that fixes the scale heads each block; the others are all bf16 numbers up to it.
  constexpr int kBlock = 128;
  const Codec some = codec(kBlock);
  const auto largest = static_cast<float>(oracle_.largest);
  for (const float head : {largest, 1.0f, 0.37f, 12345.0f, 0x1p-90f, 0x1.fep127f}) {
    Bytes values;
    std::vector<float> x;
    const auto put = [&](float value) {
      x.push_back(value);
      values.resize(values.size() + 2);
      store_value(DataType::kBfloat16, values.data(), static_cast<std::int64_t>(x.size()) - 1,
                  value);
    };
    const float fits = bfloat16_to_float(float_to_bfloat16(head));
    for (std::uint32_t h = 0; h < 0x10000u; ++h) {
      const float value = bfloat16_to_float(static_cast<std::uint16_t>(h));
      if (!(std::abs(value) <= fits)) continue;
      if (x.size() % kBlock == 0) put(fits);
      put(value);
    }
    const auto count = static_cast<std::int64_t>(x.size());
    const Bytes encoded = encode(some, values, DataType::kBfloat16);
    std::uint16_t upper;
    std::memcpy(&upper, encoded.data() + WireLayout(some.format(), count).scale_offset(), 2);
    const float scale = bfloat16_to_float(upper);
    ASSERT_GE(static_cast<double>(scale) * oracle_.largest * (1 + 0x1p-23), fits);
    const float inverse = 1.0f / scale;
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const float y = x[static_cast<std::size_t>(i)] * inverse;
      wrong += code_at(encoded, i, oracle_.bits) != nearest_code(oracle_, y);
    }
    EXPECT_EQ(wrong, 0) << "of " << count << " codes below " << head;
  }
}

TEST_P(ElementFormats, TiesGoToTheEvenCode) {
  // A scale of 1, and every point halfway between two neighbouring numbers.
  std::vector<double> numbers;
  for (const std::optional<double>& number : oracle_.numbers) {
    if (number) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  for (std::size_t i = 0; i + 1 < numbers.size(); ++i) {
    std::vector<float> x(32, static_cast<float>(oracle_.largest));
    x[5] = static_cast<float>((numbers[i] + numbers[i + 1]) / 2);
    const Bytes encoded = encode(codec(32), to_bytes(x), DataType::kFloat32);
    EXPECT_EQ(code_at(encoded, 5, oracle_.bits) % 2, 0) << x[5];
    EXPECT_EQ(code_at(encoded, 5, oracle_.bits), nearest_code(oracle_, x[5])) << x[5];
  }
}

TEST_P(ElementFormats, NegativesThatRoundToZeroTakeTheCodeOfZero) {
  std::vector<float> x(128, -1e-6f);
  x[0] = -1.0f;
  x[1] = -0.0f;
  const Bytes encoded = encode(codec(), to_bytes(x), DataType::kFloat32);
  for (std::int64_t i = 1; i < 128; ++i) EXPECT_EQ(code_at(encoded, i, oracle_.bits), 0);
  EXPECT_EQ(bits(decode(codec(), encoded, 128)[1]), 0u);
  // And of a sum, what it gives back at once as well.
  const std::byte* pieces[] = {nullptr};
  std::vector<float> sum(128, 1.0f);
  Bytes out(encoded.size());
  codec().sum_encode({pieces, x.data(), DataType::kFloat32, 0}, 128, 1.0f, out.data(), sum.data(),
                     DataType::kFloat32);
  EXPECT_EQ(out, encoded);
  for (std::size_t i = 1; i < 128; ++i) EXPECT_EQ(bits(sum[i]), 0u);
}

/// Root mean square of the error over that of the values, of an encoding in blocks of 128.
double relative_error(const Codec& codec, const std::vector<float>& x) {
  const Bytes encoded = encode(codec, to_bytes(x), DataType::kFloat32);
  const std::vector<float> y = decode(codec, encoded, static_cast<std::int64_t>(x.size()));
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += std::pow(static_cast<double>(y[i]) - x[i], 2);
    norm += std::pow(static_cast<double>(x[i]), 2);
  }
  return std::sqrt(error / norm);
}

TEST_P(ElementFormats, ErrorsAreTheOnesStated) {
  constexpr std::size_t kCount = 1 << 19;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(kCount);
  for (float& value : x) value = normal(random);
  std::vector<float> gated(kCount);  // silu(g) * u, what a gated layer's second product takes
  for (float& value : gated) {
    const float g = normal(random);
    value = g / (1.0f + std::exp(-g)) * normal(random);
  }
  double stated = 0;
  double stated_gated = 0;
  switch (element()) {
    case ElementFormat::kInt8:
      stated = 0.0065, stated_gated = 0.013;
      break;
    case ElementFormat::kFp4:
      stated = 0.109, stated_gated = 0.148;
      break;
    case ElementFormat::kE2m3:
      stated = 0.0265, stated_gated = 0.033;
      break;
    case ElementFormat::kInt4:
      stated = 0.117, stated_gated = 0.210;
      break;
    case ElementFormat::kInt6:
      stated = 0.0265, stated_gated = 0.053;
      break;
  }
  const double error = relative_error(codec(), x);
  const double error_gated = relative_error(codec(), gated);
  EXPECT_NEAR(error / stated, 1.0, 0.02);
  // Heavier tails, and a table of two digits.
  EXPECT_NEAR(error_gated / stated_gated, 1.0, 0.06);
  RecordProperty("relative_error", std::to_string(error));
  RecordProperty("relative_error_gated", std::to_string(error_gated));
}

INSTANTIATE_TEST_SUITE_P(Format, ElementFormats,
                         ::testing::Combine(::testing::ValuesIn(kElements),
                                            ::testing::ValuesIn(supported_isas())),
                         [](const auto& info) {
                           return std::string(to_string(std::get<0>(info.param))) + "_" +
                                  std::string(to_string(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace agoq::testing
