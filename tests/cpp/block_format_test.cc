// Block formats, their names, and the layout of encoded bytes.
#include "agoqcomm/block_format.h"

#include <gtest/gtest.h>

#include <utility>

#include "agoqcomm/error.h"
#include "agoqcomm/version.h"
#include "agoqcomm/wire_layout.h"

namespace agoq {
namespace {

std::string error_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

TEST(BlockFormat, DefaultIsWhatCollectivesUse) {
  const BlockFormat format;
  EXPECT_EQ(format.name(), "int8/128/bf16");
  EXPECT_DOUBLE_EQ(format.bits_per_element(), 8.125);
  EXPECT_NO_THROW(format.validate());
}

TEST(BlockFormat, BitsCountTheScale) {
  EXPECT_DOUBLE_EQ((BlockFormat{.block = 32, .scale = ScaleType::kFloat32}).bits_per_element(), 9);
  EXPECT_DOUBLE_EQ((BlockFormat{.block = 256, .scale = ScaleType::kFloat32}).bits_per_element(),
                   8.125);
}

TEST(BlockFormat, BitsAreThoseOfTheElementFormat) {
  const auto bits_of = [](ElementFormat element) {
    return BlockFormat{.element = element}.bits_per_element();
  };
  EXPECT_DOUBLE_EQ(bits_of(ElementFormat::kFp4), 4.125);
  EXPECT_DOUBLE_EQ(bits_of(ElementFormat::kInt4), 4.125);
  EXPECT_DOUBLE_EQ(bits_of(ElementFormat::kE2m3), 6.125);
  EXPECT_DOUBLE_EQ(bits_of(ElementFormat::kInt6), 6.125);
}

TEST(BlockFormat, ErrorsNameTheFieldAndWhatItMayBe) {
  for (const int block : {0, -128, 16, 48, 2048, 127}) {
    const std::string message = error_of([&] { BlockFormat{.block = block}.validate(); });
    EXPECT_NE(message.find("block is " + std::to_string(block)), std::string::npos) << message;
    EXPECT_NE(message.find("power of two from 32 to 1024"), std::string::npos) << message;
  }
  EXPECT_NE(error_of([] {
              BlockFormat{.element = static_cast<ElementFormat>(99)}.validate();
            }).find("int8, fp4, e2m3, int4, int6"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              BlockFormat{.scale = static_cast<ScaleType>(9)}.validate();
            }).find("bf16, fp32"),
            std::string::npos);
}

TEST(BlockFormat, NamesParseBack) {
  for (const auto& [name, format] : {std::pair{"int8", ElementFormat::kInt8},
                                     {"fp4", ElementFormat::kFp4},
                                     {"e2m3", ElementFormat::kE2m3},
                                     {"int4", ElementFormat::kInt4},
                                     {"int6", ElementFormat::kInt6}}) {
    EXPECT_EQ(parse_element_format(name), format);
    EXPECT_EQ(to_string(format), name);
  }
  EXPECT_EQ(parse_scale_type("bf16"), ScaleType::kBfloat16);
  EXPECT_EQ(parse_scale_type("fp32"), ScaleType::kFloat32);
  EXPECT_NE(error_of([] { parse_element_format("int9"); }).find("'int9'"), std::string::npos);
  EXPECT_NE(error_of([] { parse_scale_type(""); }).find("bf16, fp32"), std::string::npos);
}

TEST(WireLayout, PutsCodesThenScales) {
  const WireLayout layout({}, 1024);
  EXPECT_EQ(layout.blocks(), 8);
  EXPECT_EQ(layout.code_bytes(), 1024);
  EXPECT_EQ(layout.scale_offset(), 1024);
  EXPECT_EQ(layout.scale_bytes(), 16);
  EXPECT_EQ(layout.total_bytes(), 1040);
}

TEST(WireLayout, AlignsScalesAfterAShortLastBlockToTheirOwnSize) {
  for (std::int64_t count = 1; count <= 300; ++count) {
    const WireLayout bf16({.block = 128}, count);
    EXPECT_EQ(bf16.blocks(), (count + 127) / 128);
    EXPECT_EQ(bf16.code_bytes(), count);
    EXPECT_EQ(bf16.scale_offset(), count + count % 2);
    EXPECT_EQ(bf16.total_bytes(), bf16.scale_offset() + 2 * bf16.blocks());
    const WireLayout fp32({.block = 128, .scale = ScaleType::kFloat32}, count);
    EXPECT_EQ(fp32.scale_offset(), (count + 3) / 4 * 4);
    EXPECT_EQ(fp32.total_bytes(), fp32.scale_offset() + 4 * fp32.blocks());
  }
}

TEST(WireLayout, PacksCodesOfFewerBitsThanAByte) {
  for (std::int64_t count = 1; count <= 300; ++count) {
    const WireLayout fp4({.element = ElementFormat::kFp4}, count);
    EXPECT_EQ(fp4.code_bytes(), (count + 1) / 2);
    EXPECT_EQ(fp4.scale_offset(), (fp4.code_bytes() + 1) / 2 * 2);
    const WireLayout e2m3({.element = ElementFormat::kE2m3, .scale = ScaleType::kFloat32}, count);
    EXPECT_EQ(e2m3.code_bytes(), (count * 3 + 3) / 4);
    EXPECT_EQ(e2m3.scale_offset(), (e2m3.code_bytes() + 3) / 4 * 4);
    EXPECT_EQ(e2m3.total_bytes(), e2m3.scale_offset() + 4 * e2m3.blocks());
  }
}

TEST(WireLayout, TakesCountsFromZeroToBeyondInt32) {
  EXPECT_EQ(WireLayout({}, 0).total_bytes(), 0);
  const std::int64_t count = (std::int64_t{1} << 40) + 1;
  const WireLayout layout({}, count);
  EXPECT_EQ(layout.blocks(), (std::int64_t{1} << 33) + 1);
  EXPECT_EQ(layout.scale_offset(), count + 1);
  EXPECT_EQ(layout.total_bytes(), count + 1 + 2 * layout.blocks());
}

TEST(WireLayout, RefusesWhatItCannotLayOut) {
  EXPECT_NE(error_of([] { WireLayout({}, -1); }).find("count is -1"), std::string::npos);
  EXPECT_NE(error_of([] { WireLayout({.block = 7}, 1); }).find("block is 7"), std::string::npos);
}

TEST(Version, OfTheLibraryIsThatOfTheHeader) { EXPECT_STREQ(version(), AGOQCOMM_VERSION_STRING); }

}  // namespace
}  // namespace agoq
