// Lists of segments, and what only sums of segments can do: start, residual, many pieces.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "agoqcomm/error.h"
#include "codec_inputs.h"
#include "format/float_bits.h"
#include "kernel_cases.h"
#include "kernel_transcript.h"

namespace agoq::testing {
namespace {

constexpr DataType kFloat32 = DataType::kFloat32;
constexpr DataType kBfloat16 = DataType::kBfloat16;

using Buffers = std::vector<std::unique_ptr<DeviceBuffer>>;

std::int64_t encoded_size(const BlockFormat& format, std::int64_t count) {
  return WireLayout(format, count).total_bytes();
}

DeviceBuffer& add(Buffers& buffers, std::int64_t size, const Bytes& contents = {},
                  int misalignment = 0) {
  buffers.push_back(std::make_unique<DeviceBuffer>(size, misalignment, contents));
  return *buffers.back();
}

Bytes encode(const Codec& codec, const Bytes& values, DataType type,
             const Rounding& rounding = {}) {
  const auto count = static_cast<std::int64_t>(values.size() / size_of(type));
  Bytes encoded(static_cast<std::size_t>(encoded_size(codec.format(), count)));
  codec.encode(values.data(), type, count, encoded.data(), rounding);
  return encoded;
}

Bytes narrowed(const std::vector<float>& x, DataType type) {
  Bytes bytes(x.size() * size_of(type));
  for (std::size_t i = 0; i < x.size(); ++i) {
    store_value(type, bytes.data(), static_cast<std::int64_t>(i), canonical(x[i]));
  }
  return bytes;
}

/// Counts that differ, with empty ones and short last blocks among them.
std::int64_t count_of(int segment) { return segment % 5 == 3 ? 0 : (segment * 37) % 700 + 1; }

std::string encode_and_decode_take_lists() {
  KernelTranscript transcript({});
  const BlockFormat& format = transcript.reference().format();
  constexpr int kSegments = 70;  // four fifths of them have elements: one launch
  Rounding rounding{.stochastic = true, .seed = 11, .first_element = 1000};
  Buffers inputs, encoded, decoded, sums;
  std::vector<DeviceEncodeSegment> to_encode;
  std::vector<DeviceDecodeSegment> to_decode, to_accumulate;
  std::vector<Bytes> values;
  for (int i = 0; i < kSegments; ++i) {
    const std::int64_t count = count_of(i);
    values.push_back(make_input(Family::kNormal, kBfloat16, count, static_cast<unsigned>(i)));
    add(inputs, 2 * count, values.back(), i % 3 * 2);
    add(encoded, encoded_size(format, count));
    add(decoded, 2 * count);
    add(sums, 4 * count, Bytes(static_cast<std::size_t>(4 * count)));
    to_encode.push_back({inputs.back()->data(), encoded.back()->data(), count, 10 * i});
    to_decode.push_back({encoded.back()->data(), decoded.back()->data(), count});
    to_accumulate.push_back({encoded.back()->data(), sums.back()->data(), count});
  }
  const std::int64_t before = kernel_launches();
  transcript.cuda().encode(to_encode, kBfloat16, nullptr, rounding);
  transcript.cuda().decode(to_decode, kBfloat16, nullptr);
  transcript.cuda().decode_accumulate(to_accumulate, nullptr);
  if (before >= 0) transcript.expect(kernel_launches() - before == 3, "one launch a list");
  for (int i = 0; i < kSegments; ++i) {
    transcript.set_context("segment " + std::to_string(i));
    rounding.first_element = 1000 + 10 * i;
    const auto index = static_cast<std::size_t>(i);
    const std::int64_t count = count_of(i);
    const Bytes expected = encode(transcript.reference(), values[index], kBfloat16, rounding);
    transcript.expect_equal(transcript.read(*encoded[index]), expected, "encode");
    Bytes narrow(static_cast<std::size_t>(2 * count));
    transcript.reference().decode(expected.data(), count, narrow.data(), kBfloat16);
    transcript.expect_equal(transcript.read(*decoded[index]), narrow, "decode");
    Bytes wide(static_cast<std::size_t>(4 * count));
    transcript.reference().decode(expected.data(), count, wide.data(), kFloat32);
    transcript.expect_equal(transcript.read(*sums[index]), wide, "decode_accumulate");
  }
  return transcript.verdict();
}

/// Sums of segments with an own piece and a residual, against the sum and the addition on the host.
std::string sums_take_lists_and_a_residual(DataType residual_type, bool in_place) {
  KernelTranscript transcript({.block = 64});
  const Codec& reference = transcript.reference();
  constexpr int kSegments = 37;  // more than one launch takes
  constexpr int kRanks = 3;
  const DeviceSum sum{.own_rank = 1,
                      .own_type = kBfloat16,
                      .residual_type = residual_type,
                      .type = residual_type,
                      .factor = 1.0f / kRanks};
  Buffers buffers, outputs, encodings;
  std::vector<std::vector<const std::byte*>> device_pieces(kSegments);
  std::vector<DeviceSumSegment> to_decode, to_encode;
  std::vector<Bytes> expected_values, expected_encoded;
  for (int i = 0; i < kSegments; ++i) {
    const std::int64_t count = count_of(i);
    const auto seed = static_cast<unsigned>(i);
    std::vector<Bytes> host;
    std::vector<const std::byte*> host_pieces;
    for (unsigned rank = 0; rank < kRanks; ++rank) {
      host.push_back(
          encode(reference, make_input(Family::kNormal, kFloat32, count, seed + rank), kFloat32));
      device_pieces[seed].push_back(
          add(buffers, static_cast<std::int64_t>(host.back().size()), host.back()).data());
    }
    for (const Bytes& piece : host) host_pieces.push_back(piece.data());
    const Bytes own = make_input(Family::kNormal, kBfloat16, count, seed + 9);
    const Bytes residual = make_input(Family::kNormal, residual_type, count, seed + 10);
    std::vector<float> x(static_cast<std::size_t>(count));
    reference.sum_decode({host_pieces, count > 0 ? own.data() : nullptr, kBfloat16, 1}, count,
                         sum.factor, x.data(), kFloat32);
    for (std::int64_t j = 0; j < count; ++j) {
      float& value = x[static_cast<std::size_t>(j)];
      value = value + load_value(residual_type, residual.data(), j);
    }
    expected_values.push_back(narrowed(x, residual_type));
    expected_encoded.push_back(encode(reference, narrowed(x, kFloat32), kFloat32));

    const auto bytes = static_cast<std::int64_t>(residual.size());
    const int misalignment = i % 4 * 2;
    DeviceSumSegment segment;
    segment.pieces = device_pieces[seed];
    segment.own = add(buffers, 2 * count, own, misalignment).data();
    segment.residual = add(buffers, bytes, residual, misalignment).data();
    segment.count = count;
    segment.encoded = add(encodings, encoded_size(reference.format(), count)).data();
    to_encode.push_back(segment);
    // Where the residual's memory becomes the output's.
    DeviceBuffer& output = add(outputs, bytes, residual, misalignment);
    segment.values = output.data();
    if (in_place) segment.residual = output.data();
    to_decode.push_back(segment);
  }
  transcript.cuda().sum_encode(to_encode, sum, nullptr);
  transcript.cuda().sum_decode(to_decode, sum, nullptr);
  for (std::size_t i = 0; i < kSegments; ++i) {
    transcript.set_context("segment " + std::to_string(i));
    transcript.expect_equal(transcript.read(*outputs[i]), expected_values[i], "sum_decode");
    transcript.expect_equal(transcript.read(*encodings[i]), expected_encoded[i], "sum_encode");
  }
  return transcript.verdict();
}

/// `ranks` pieces in calls of at most kMaxPieces, each starting from the sum before.
std::string many_pieces(int ranks) {
  KernelTranscript transcript({});
  const Codec& reference = transcript.reference();
  const std::int64_t count = 333;
  Buffers buffers;
  std::vector<Bytes> host;
  std::vector<const std::byte*> host_pieces, device_pieces;
  for (int rank = 0; rank < ranks; ++rank) {
    host.push_back(encode(reference,
                          make_input(Family::kNormal, kFloat32, count, static_cast<unsigned>(rank)),
                          kFloat32));
    device_pieces.push_back(
        add(buffers, static_cast<std::int64_t>(host.back().size()), host.back()).data());
  }
  for (const Bytes& piece : host) host_pieces.push_back(piece.data());
  Bytes expected(static_cast<std::size_t>(4 * count));
  reference.sum_decode({host_pieces}, count, 1.0f, expected.data(), kFloat32);

  const DeviceBuffer output(4 * count);
  const void* start = nullptr;
  for (int first = 0; first < ranks; first += CudaCodec::kMaxPieces) {
    DeviceSumSegment segment;
    segment.pieces =
        std::span(device_pieces)
            .subspan(static_cast<std::size_t>(first),
                     static_cast<std::size_t>(std::min(CudaCodec::kMaxPieces, ranks - first)));
    segment.start = static_cast<const float*>(start);
    segment.values = output.data();
    segment.count = count;
    transcript.cuda().sum_decode({&segment, 1}, {}, nullptr);
    start = output.data();
  }
  transcript.expect_equal(transcript.read(output), expected, "the sum of many pieces");
  return transcript.verdict();
}

std::string an_output_may_replace_the_owners_piece() {
  KernelTranscript transcript({});
  const std::int64_t count = 1000;
  const Bytes own = make_input(Family::kNormal, kBfloat16, count, 1);
  const Bytes piece =
      encode(transcript.reference(), make_input(Family::kNormal, kFloat32, count, 2), kFloat32);
  const std::byte* host_pieces[] = {nullptr, piece.data()};
  Bytes expected(own.size());
  Bytes expected_encoded(piece.size());
  transcript.reference().sum_encode({host_pieces, own.data(), kBfloat16, 0}, count, 0.5f,
                                    expected_encoded.data(), expected.data(), kBfloat16);
  const DeviceBuffer device_piece(static_cast<std::int64_t>(piece.size()), 0, piece);
  const DeviceBuffer values(2 * count, 0, own);
  const DeviceBuffer encoded(static_cast<std::int64_t>(piece.size()));
  const std::byte* device_pieces[] = {nullptr, device_piece.data()};
  transcript.cuda().sum_encode({device_pieces, values.data(), kBfloat16, 0}, count, 0.5f,
                               encoded.data(), values.data(), kBfloat16, nullptr);
  transcript.expect_equal(transcript.read(encoded), expected_encoded, "sum_encode in place");
  transcript.expect_equal(transcript.read(values), expected, "its decoded output");
  return transcript.verdict();
}

}  // namespace

void append_list_cases(std::vector<KernelCase>& cases) {
  cases.push_back({"EncodeAndDecodeTakeLists", encode_and_decode_take_lists});
  for (const DataType type : kTypes) {
    cases.push_back({"SumsTakeListsAndAResidual_" + std::string(to_string(type)),
                     [=] { return sums_take_lists_and_a_residual(type, false); }});
  }
  cases.push_back({"TheSumMayReplaceTheResidual",
                   [] { return sums_take_lists_and_a_residual(kBfloat16, true); }});
  for (const int ranks : {CudaCodec::kMaxPieces, 2 * CudaCodec::kMaxPieces + 3}) {
    cases.push_back({"ManyPieces_" + std::to_string(ranks), [=] { return many_pieces(ranks); }});
  }
  cases.push_back({"AnOutputMayReplaceTheOwnersPiece", an_output_may_replace_the_owners_piece});
}

}  // namespace agoq::testing
