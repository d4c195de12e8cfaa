// Every ISA's kernels against the scalar reference, byte for byte, and nothing written outside.
#include <gtest/gtest.h>

#include <tuple>

#include "agoqcomm/codec.h"
#include "codec_testing.h"

namespace agoq::testing {
namespace {

/// What an input gives under every function of a codec, one after the other.
class Transcript {
 public:
  Transcript(const Codec& codec, int misalignment) : codec_(codec), misalignment_(misalignment) {}

  const Bytes& bytes() const { return bytes_; }

  void encode(const Bytes& values, DataType type, std::int64_t count) {
    GuardedBuffer in(static_cast<std::int64_t>(values.size()), misalignment_);
    if (!values.empty()) std::memcpy(in.data(), values.data(), values.size());
    GuardedBuffer out(WireLayout(codec_.format(), count).total_bytes(), misalignment_ / 4 * 4);
    codec_.encode(in.data(), type, count, out.data());
    in.expect_intact();
    keep(out);
  }

  void decode(const Bytes& encoded, std::int64_t count) {
    for (const DataType type : kTypes) {
      GuardedBuffer out(count * static_cast<std::int64_t>(size_of(type)), misalignment_);
      codec_.decode(encoded.data(), count, out.data(), type, CacheUse::kCached);
      keep(out);
      GuardedBuffer streamed(count * static_cast<std::int64_t>(size_of(type)), misalignment_);
      codec_.decode(encoded.data(), count, streamed.data(), type, CacheUse::kStreamed);
      streamed.expect_intact();
      EXPECT_EQ(streamed.contents(), out.contents());
    }
  }

  void accumulate(const Bytes& encoded, const Bytes& start, std::int64_t count) {
    GuardedBuffer sum(4 * count, misalignment_);
    if (!start.empty()) std::memcpy(sum.data(), start.data(), start.size());
    void* accumulator = sum.data();  // any alignment, as the interface says
    codec_.decode_accumulate(encoded.data(), count, static_cast<float*>(accumulator));
    keep(sum);
  }

  void sum(const std::vector<Bytes>& encoded, int own_rank, const Bytes& own, DataType own_type,
           std::int64_t count, float factor) {
    std::vector<const std::byte*> pieces;
    for (const Bytes& piece : encoded) pieces.push_back(piece.data());
    if (own_rank >= 0) pieces[static_cast<std::size_t>(own_rank)] = nullptr;
    GuardedBuffer in(static_cast<std::int64_t>(own.size()), misalignment_);
    if (!own.empty()) std::memcpy(in.data(), own.data(), own.size());
    const Pieces all{pieces, own_rank >= 0 ? in.data() : nullptr, own_type, own_rank};
    for (const DataType type : kTypes) {
      GuardedBuffer out(count * static_cast<std::int64_t>(size_of(type)), misalignment_);
      codec_.sum_decode(all, count, factor, out.data(), type);
      keep(out);
      const std::int64_t size = WireLayout(codec_.format(), count).total_bytes();
      GuardedBuffer sum_bytes(size);
      codec_.sum_encode(all, count, factor, sum_bytes.data(), out.data(), type);
      keep(sum_bytes);
      keep(out);
      GuardedBuffer alone(size);
      codec_.sum_encode(all, count, factor, alone.data(), nullptr, type);
      EXPECT_EQ(alone.contents(), sum_bytes.contents());
    }
    in.expect_intact();
  }

 private:
  void keep(GuardedBuffer& buffer) {
    buffer.expect_intact();
    const Bytes contents = buffer.contents();
    bytes_.insert(bytes_.end(), contents.begin(), contents.end());
  }

  const Codec& codec_;
  int misalignment_;
  Bytes bytes_;
};

class CodecIsa : public ::testing::TestWithParam<std::tuple<ElementFormat, int>> {
 protected:
  ElementFormat element() const { return std::get<0>(GetParam()); }
  int block() const { return std::get<1>(GetParam()); }
  BlockFormat format_with(ScaleType scale) const {
    return {.element = element(), .block = block(), .scale = scale};
  }

  void SetUp() override {
    if (supported_isas().size() < 2) {
      GTEST_SKIP() << "this CPU has no SIMD kernels to compare with the scalar ones";
    }
  }

  /// Runs `record` for every ISA and compares with the scalar transcript.
  void compare(const BlockFormat& format, int misalignment, const auto& record) {
    Bytes expected;
    for (const CpuIsa isa : supported_isas()) {
      const Codec codec(format, isa);
      Transcript transcript(codec, misalignment);
      record(transcript);
      if (isa == CpuIsa::kScalar) {
        expected = transcript.bytes();
      } else {
        EXPECT_TRUE(transcript.bytes() == expected)
            << to_string(isa) << " differs from scalar, " << format.name() << ", misaligned by "
            << misalignment;
      }
    }
  }

  Bytes encoded_input(const BlockFormat& format, Family family, std::int64_t count, unsigned seed) {
    const Codec scalar(format, CpuIsa::kScalar);
    return encode(scalar, make_input(family, DataType::kFloat32, count, seed), DataType::kFloat32);
  }
};

TEST_P(CodecIsa, AllFunctionsAgreeOnAllKindsOfInput) {
  unsigned seed = 0;
  for (const ScaleType scale : kScaleTypes) {
    const BlockFormat format = format_with(scale);
    for (const Family family : kFamilies) {
      SCOPED_TRACE(static_cast<int>(family));
      const std::int64_t count = 10 * block() + block() / 2 + 3;
      const int misalignment = static_cast<int>(++seed % 5);
      for (const DataType type : kTypes) {
        const Bytes values = make_input(family, type, count, seed);
        compare(format, misalignment, [&](Transcript& t) { t.encode(values, type, count); });
      }
      const Bytes encoded = encoded_input(format, family, count, seed);
      const Bytes start = make_input(family, DataType::kFloat32, count, seed + 1);
      compare(format, misalignment, [&](Transcript& t) {
        t.decode(encoded, count);
        t.accumulate(encoded, start, count);
      });
    }
  }
}

TEST_P(CodecIsa, AllFunctionsAgreeOnEveryShortLastBlock) {
  for (const ScaleType scale : kScaleTypes) {
    const BlockFormat format = format_with(scale);
    // Every count where there are few; else every length of the last block, or one in 29.
    const int step = block() <= 64 || element() == ElementFormat::kInt8 ? 1 : 29;
    for (std::int64_t rest = 0; rest < (block() <= 64 ? 3 * block() + 1 : block()); rest += step) {
      const std::int64_t count = block() <= 64 ? rest : rest % 3 * block() + rest;
      const Bytes encoded = encoded_input(format, Family::kNormal, count, 1);
      const Bytes start = make_input(Family::kNormal, DataType::kFloat32, count, 2);
      const DataType type = kTypes[rest % 3];
      const Bytes values = make_input(Family::kSpecials, type, count, 3);
      compare(format, static_cast<int>(rest % 7), [&](Transcript& t) {
        t.encode(values, type, count);
        t.decode(encoded, count);
        t.accumulate(encoded, start, count);
        t.sum({encoded, {}, encoded}, 1, values, type, count, 0.5f);
      });
    }
  }
}

TEST_P(CodecIsa, SumsAgreeForEveryOwnerAndNumberOfPieces) {
  const std::int64_t count = 2 * block() + 5;
  unsigned seed = 0;
  for (const ScaleType scale : kScaleTypes) {
    const BlockFormat format = format_with(scale);
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (int own_rank = -1; own_rank < ranks; ++own_rank) {
        ++seed;
        const DataType own_type = kTypes[seed % 3];
        const Bytes own = make_input(kFamilies[seed % 10], own_type, count, seed);
        std::vector<Bytes> pieces;
        for (int rank = 0; rank < ranks; ++rank) {
          // Mostly ordinary pieces, so that one kind of hostile one shows in the sum.
          const Family family = rank == 1 ? kFamilies[seed / 3 % 10] : Family::kNormal;
          pieces.push_back(encoded_input(format, family, count, seed + 31u * rank));
        }
        compare(format, static_cast<int>(seed % 4), [&](Transcript& t) {
          t.sum(pieces, own_rank, own, own_type, count, seed % 2 == 0 ? 1.0f : 1.0f / 3.0f);
        });
      }
    }
  }
}

TEST_P(CodecIsa, SumsAgreeAtTheLimitsOfTheRange) {
  const std::int64_t count = 4 * block();
  for (const ScaleType scale : kScaleTypes) {
    const BlockFormat format = format_with(scale);
    for (const Family family : {Family::kLargest, Family::kRandomBits, Family::kEveryExponent}) {
      for (unsigned seed = 0; seed < 4; ++seed) {
        std::vector<Bytes> pieces;
        for (unsigned rank = 0; rank < 4; ++rank) {
          pieces.push_back(encoded_input(format, family, count, 10 * seed + rank));
        }
        const Bytes own = make_input(family, DataType::kFloat32, count, seed);
        for (const float factor : {1.0f, 0.25f, 3.0f, 0.0f, INFINITY}) {
          compare(format, 0,
                  [&](Transcript& t) { t.sum(pieces, 2, own, DataType::kFloat32, count, factor); });
        }
      }
    }
  }
}

TEST_P(CodecIsa, DecodersAgreeOnBytesThatNoEncoderWrites) {
  std::mt19937 random(7);
  for (const ScaleType scale : kScaleTypes) {
    const BlockFormat format = format_with(scale);
    for (int trial = 0; trial < 20; ++trial) {
      const std::int64_t count = 6 * block() + trial;
      Bytes garbage(static_cast<std::size_t>(WireLayout(format, count).total_bytes()));
      for (std::byte& b : garbage) b = static_cast<std::byte>(random());
      const Bytes start = make_input(Family::kNormal, DataType::kFloat32, count, 1);
      compare(format, 0, [&](Transcript& t) {
        t.decode(garbage, count);
        t.accumulate(garbage, start, count);
        t.sum({garbage, garbage}, -1, {}, DataType::kFloat32, count, 1.0f);
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Format, CodecIsa,
                         ::testing::Combine(::testing::ValuesIn(kElements),
                                            ::testing::ValuesIn(kBlocks)),
                         [](const auto& info) {
                           return std::string(to_string(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace agoq::testing
