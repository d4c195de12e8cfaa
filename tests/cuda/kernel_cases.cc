#include "kernel_cases.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "codec_inputs.h"
#include "format/formats.h"
#include "format/half.h"
#include "kernel_transcript.h"

namespace agoq::testing {
namespace {

constexpr DataType kFloat32 = DataType::kFloat32;

Bytes encoded_input(const Codec& codec, Family family, std::int64_t count, unsigned seed) {
  const Bytes values = make_input(family, kFloat32, count, seed);
  Bytes encoded(static_cast<std::size_t>(WireLayout(codec.format(), count).total_bytes()));
  codec.encode(values.data(), kFloat32, count, encoded.data());
  return encoded;
}

HostPieces make_pieces(const Codec& codec, int ranks, int own_rank, std::int64_t count,
                       unsigned seed, Family hostile = Family::kNormal) {
  HostPieces pieces;
  pieces.own_rank = own_rank;
  pieces.own_type = kTypes[seed % 3];
  for (int rank = 0; rank < ranks; ++rank) {
    // Mostly ordinary pieces, so that one kind of hostile one shows in the sum.
    const Family family = rank == ranks / 2 ? hostile : Family::kNormal;
    pieces.encoded.push_back(encoded_input(codec, family, count, seed + 31u * rank));
  }
  if (own_rank >= 0) pieces.own = make_input(hostile, pieces.own_type, count, seed);
  return pieces;
}

std::string every_kind_of_input(const BlockFormat& format) {
  KernelTranscript transcript(format);
  unsigned seed = 0;
  for (const Family family : kFamilies) {
    const std::int64_t count = 2 * format.block + format.block / 2 + 3;
    const int misalignment = static_cast<int>(++seed % 5);
    transcript.set_misalignment(misalignment);
    transcript.set_context("family " + std::to_string(static_cast<int>(family)) +
                           ", misaligned by " + std::to_string(misalignment));
    set_schedule(seed);
    for (const DataType type : kTypes) {
      transcript.encode(make_input(family, type, count, seed), type);
    }
    const Bytes encoded = encoded_input(transcript.reference(), family, count, seed);
    transcript.decode(encoded, count);
    transcript.accumulate(encoded, make_input(family, kFloat32, count, seed + 1));
  }
  return transcript.verdict();
}

std::string every_length_of_the_last_block(const BlockFormat& format) {
  KernelTranscript transcript(format);
  // All of them for short blocks; for long ones those around the ends of vectors.
  for (int rest = 0; rest < format.block; rest += format.block <= 64 ? 1 : format.block / 32 - 1) {
    const std::int64_t count = rest % 3 * format.block + rest;
    const int misalignment = rest % 7;
    transcript.set_misalignment(misalignment);
    transcript.set_context(std::to_string(count) + " elements, misaligned by " +
                           std::to_string(misalignment));
    const DataType type = kTypes[rest % 3];
    const Bytes encoded = encoded_input(transcript.reference(), Family::kNormal, count, 1);
    transcript.encode(make_input(Family::kSpecials, type, count, 3), type);
    transcript.decode(encoded, count);
    transcript.accumulate(encoded, make_input(Family::kNormal, kFloat32, count, 2));
    transcript.sum(make_pieces(transcript.reference(), 3, 1, count, 4, Family::kSpecials), count,
                   0.5f);
  }
  return transcript.verdict();
}

std::string every_owner_and_number_of_pieces(const BlockFormat& format) {
  KernelTranscript transcript(format);
  const std::int64_t count = 2 * format.block + 5;
  unsigned seed = 0;
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int own_rank = -1; own_rank < ranks; own_rank += ranks > 4 ? 3 : 1) {
      ++seed;
      transcript.set_misalignment(seed % 4 == 3 ? static_cast<int>(seed % 16) : 0);
      transcript.set_context(std::to_string(ranks) + " ranks, owner " + std::to_string(own_rank));
      set_schedule(seed);
      const Family hostile = kFamilies[seed / 3 % 10];
      transcript.sum(make_pieces(transcript.reference(), ranks, own_rank, count, seed, hostile),
                     count, seed % 2 == 0 ? 1.0f : 1.0f / 3.0f);
    }
  }
  return transcript.verdict();
}

std::string limits_of_the_range(const BlockFormat& format) {
  KernelTranscript transcript(format);
  const std::int64_t count = 2 * format.block;
  for (const Family family : {Family::kLargest, Family::kRandomBits, Family::kEveryExponent}) {
    for (const float factor : {1.0f, 3.0f, 0.0f, INFINITY}) {
      transcript.set_context("family " + std::to_string(static_cast<int>(family)) + ", factor " +
                             std::to_string(factor));
      HostPieces pieces;
      for (unsigned rank = 0; rank < 4; ++rank) {
        pieces.encoded.push_back(encoded_input(transcript.reference(), family, count, rank));
      }
      pieces.own_rank = 2;
      pieces.own = make_input(family, kFloat32, count, 9);
      transcript.sum(pieces, count, factor);
    }
  }
  return transcript.verdict();
}

std::string bytes_that_no_encoder_writes(const BlockFormat& format) {
  KernelTranscript transcript(format);
  std::mt19937 random(7);
  for (int trial = 0; trial < 5; ++trial) {
    transcript.set_context("trial " + std::to_string(trial));
    const std::int64_t count = 3 * format.block + trial;
    Bytes garbage(static_cast<std::size_t>(WireLayout(format, count).total_bytes()));
    for (std::byte& b : garbage) b = static_cast<std::byte>(random());
    transcript.decode(garbage, count);
    transcript.accumulate(garbage, make_input(Family::kNormal, kFloat32, count, 1));
    transcript.sum({.encoded = {garbage, garbage}, .own = {}}, count, 1.0f);
  }
  return transcript.verdict();
}

std::string stochastic_rounding(const BlockFormat& format) {
  KernelTranscript transcript(format);
  const std::int64_t count = 2 * format.block + 13;
  for (std::int64_t first = 0; first < 6; ++first) {
    const Rounding rounding{.stochastic = true,
                            .seed = 0x123456789abcdefu + static_cast<std::uint64_t>(first),
                            .call = 5,
                            .rank = 3,
                            .stage = 1,
                            .first_element = first + (first == 5 ? std::int64_t{1} << 34 : 0)};
    transcript.set_context("first element " + std::to_string(rounding.first_element));
    for (const DataType type : kTypes) {
      transcript.encode(make_input(Family::kSpecials, type, count, 1), type, rounding);
    }
    transcript.sum(make_pieces(transcript.reference(), 3, 1, count, 2), count, 0.5f, rounding);
  }
  return transcript.verdict();
}

std::string narrow_launches_stride(const BlockFormat& format) {
  KernelTranscript transcript(format, 1);
  const std::int64_t count = 20001;
  transcript.set_context("one thread block");
  transcript.encode(make_input(Family::kNormal, DataType::kBfloat16, count, 1),
                    DataType::kBfloat16);
  const Bytes encoded = encoded_input(transcript.reference(), Family::kNormal, count, 2);
  transcript.decode(encoded, count);
  transcript.accumulate(encoded, make_input(Family::kNormal, kFloat32, count, 3));
  transcript.sum(make_pieces(transcript.reference(), 2, 1, count, 4), count, 1.0f);
  return transcript.verdict();
}

/// Every bf16 number, in blocks whose scale is `largest` over the format's largest code: larger
/// numbers, and NaN, are left to other cases.
Bytes every_bfloat16_up_to(float largest, int block) {
  std::vector<float> x;
  for (std::uint32_t pattern = 0; pattern < 1u << 16; ++pattern) {
    if (x.size() % static_cast<std::size_t>(block) == 0) x.push_back(largest);
    const float value = bfloat16_to_float(static_cast<std::uint16_t>(pattern));
    if (std::abs(value) <= largest) x.push_back(value);
  }
  return to_bytes(x);
}

std::string every_bfloat16(const BlockFormat& format) {
  KernelTranscript transcript(format);
  for (const float largest : {1.0f, 0.00731f, 3.1e20f}) {
    transcript.set_context("up to " + std::to_string(largest));
    transcript.encode(every_bfloat16_up_to(largest, format.block), kFloat32);
  }
  return transcript.verdict();
}

/// Every test of one format; `add` names it.
template <class Add>
void add_format_cases(const BlockFormat& format, Add add) {
  add("EveryKindOfInput", every_kind_of_input);
  add("EveryLengthOfTheLastBlock", every_length_of_the_last_block);
  add("EveryOwnerAndNumberOfPieces", every_owner_and_number_of_pieces);
  add("LimitsOfTheRange", limits_of_the_range);
  add("BytesThatNoEncoderWrites", bytes_that_no_encoder_writes);
  add("StochasticRounding", stochastic_rounding);
  if (format.block >= 128) add("NarrowLaunchesStride", narrow_launches_stride);
  if (format.block == 128) add("EveryBfloat16", every_bfloat16);
}

/// Every kind of block for the default format. For the others one of each number of vectors a lane,
/// and of lanes a block, which is what kernels tell apart.
std::vector<BlockFormat> formats_to_test() {
  std::vector<BlockFormat> formats;
  for (const FormatInfo& info : kFormats) {
    for (const int block : kBlocks) {
      for (const ScaleType scale : kScaleTypes) {
        const bool is_default = info.format == BlockFormat{}.element;
        const bool is_wide = block == 32 || block == 512;
        const bool is_chosen =
            block != 64 && block != 256 && (scale == ScaleType::kFloat32) == is_wide;
        if (is_default || is_chosen) formats.push_back({info.format, block, scale});
      }
    }
  }
  return formats;
}

}  // namespace

std::vector<KernelCase> kernel_cases() {
  std::vector<KernelCase> cases;
  for (const BlockFormat& format : formats_to_test()) {
    add_format_cases(format, [&](const std::string& name, auto run) {
      std::string suffix = format.name();
      std::replace(suffix.begin(), suffix.end(), '/', '_');
      cases.push_back({name + "_" + suffix, [=] { return run(format); }});
    });
  }
  append_list_cases(cases);
  append_row_cases(cases);
  return cases;
}

}  // namespace agoq::testing
