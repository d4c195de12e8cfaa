#include "kernel_transcript.h"

#include <algorithm>
#include <memory>

namespace agoq::testing {
namespace {

std::int64_t bytes_for(std::int64_t count, DataType type) {
  return count * static_cast<std::int64_t>(size_of(type));
}

}  // namespace

void KernelTranscript::expect(bool condition, const std::string& what) {
  ++compared_;
  if (condition) return;
  if (failures_++ == 0) first_ = what + ", " + reference_.format().name() + ", " + context_;
}

void KernelTranscript::expect_equal(const Bytes& actual, const Bytes& expected,
                                    const std::string& what) {
  const auto at = std::mismatch(actual.begin(), actual.end(), expected.begin(), expected.end());
  const auto index = at.first - actual.begin();
  expect(actual == expected, what + " differs from byte " + std::to_string(index) + " of " +
                                 std::to_string(expected.size()));
}

Bytes KernelTranscript::read(const DeviceBuffer& buffer) {
  Bytes bytes = buffer.read();
  expect(buffer.is_intact(), "bytes were written around a buffer");
  return bytes;
}

std::string KernelTranscript::verdict() const {
  if (compared_ == 0) return "nothing was compared";
  if (failures_ == 0) return "";
  return first_ + " (" + std::to_string(failures_) + " of " + std::to_string(compared_) +
         " comparisons failed)";
}

void KernelTranscript::encode(const Bytes& values, DataType type, const Rounding& rounding) {
  const auto count = static_cast<std::int64_t>(values.size() / size_of(type));
  Bytes expected(static_cast<std::size_t>(encoded_size(count)));
  reference_.encode(values.data(), type, count, expected.data(), rounding);
  const DeviceBuffer in(static_cast<std::int64_t>(values.size()), misalignment_, values);
  const DeviceBuffer out(encoded_size(count), encoded_misalignment());
  cuda_.encode(in.data(), type, count, out.data(), nullptr, rounding);
  expect_equal(read(out), expected, "encode from " + std::string(to_string(type)));
  expect_equal(read(in), values, "the input of encode");
}

void KernelTranscript::decode(const Bytes& encoded, std::int64_t count) {
  const DeviceBuffer in(encoded_size(count), encoded_misalignment(), encoded);
  for (const DataType type : kTypes) {
    Bytes expected(static_cast<std::size_t>(bytes_for(count, type)));
    reference_.decode(encoded.data(), count, expected.data(), type);
    const DeviceBuffer out(bytes_for(count, type), misalignment_);
    cuda_.decode(in.data(), count, out.data(), type, nullptr);
    expect_equal(read(out), expected, "decode to " + std::string(to_string(type)));
  }
}

void KernelTranscript::accumulate(const Bytes& encoded, const Bytes& start) {
  const auto count = static_cast<std::int64_t>(start.size() / 4);
  Bytes expected = start;
  void* accumulator = expected.data();
  reference_.decode_accumulate(encoded.data(), count, static_cast<float*>(accumulator));
  const DeviceBuffer in(encoded_size(count), encoded_misalignment(), encoded);
  const DeviceBuffer out(bytes_for(count, DataType::kFloat32), misalignment_, start);
  void* device_accumulator = out.data();
  cuda_.decode_accumulate(in.data(), count, static_cast<float*>(device_accumulator), nullptr);
  expect_equal(read(out), expected, "decode_accumulate");
}

void KernelTranscript::sum(const HostPieces& pieces, std::int64_t count, float factor,
                           const Rounding& rounding) {
  std::vector<const std::byte*> host;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
  std::vector<const std::byte*> device;
  for (std::size_t rank = 0; rank < pieces.encoded.size(); ++rank) {
    const bool is_own = static_cast<int>(rank) == pieces.own_rank;
    host.push_back(is_own ? nullptr : pieces.encoded[rank].data());
    buffers.push_back(std::make_unique<DeviceBuffer>(encoded_size(count), encoded_misalignment(),
                                                     pieces.encoded[rank]));
    device.push_back(is_own ? nullptr : buffers.back()->data());
  }
  const DeviceBuffer own(static_cast<std::int64_t>(pieces.own.size()), misalignment_, pieces.own);
  const bool owned = pieces.own_rank >= 0;
  const Pieces on_host{host, owned ? pieces.own.data() : nullptr, pieces.own_type, pieces.own_rank};
  const Pieces on_device{device, owned ? own.data() : nullptr, pieces.own_type, pieces.own_rank};

  for (const DataType type : kTypes) {
    const std::string to = " to " + std::string(to_string(type));
    Bytes expected(static_cast<std::size_t>(bytes_for(count, type)));
    Bytes expected_encoded(static_cast<std::size_t>(encoded_size(count)));
    reference_.sum_decode(on_host, count, factor, expected.data(), type);
    const DeviceBuffer values(bytes_for(count, type), misalignment_);
    cuda_.sum_decode(on_device, count, factor, values.data(), type, nullptr);
    expect_equal(read(values), expected, "sum_decode" + to);

    reference_.sum_encode(on_host, count, factor, expected_encoded.data(), expected.data(), type,
                          rounding);
    const DeviceBuffer encoded(encoded_size(count), encoded_misalignment());
    cuda_.sum_encode(on_device, count, factor, encoded.data(), values.data(), type, nullptr,
                     rounding);
    expect_equal(read(encoded), expected_encoded, "sum_encode" + to);
    expect_equal(read(values), expected, "the decoded output of sum_encode" + to);
    const DeviceBuffer alone(encoded_size(count), encoded_misalignment());
    cuda_.sum_encode(on_device, count, factor, alone.data(), nullptr, type, nullptr, rounding);
    expect_equal(read(alone), expected_encoded, "sum_encode without decoded output");
  }
  const std::size_t replaced = pieces.own_rank == 0 ? 1 : 0;
  if (replaced == pieces.encoded.size()) return;
  const DeviceBuffer in_place(encoded_size(count), encoded_misalignment(),
                              pieces.encoded[replaced]);
  device[replaced] = in_place.data();
  Bytes expected(static_cast<std::size_t>(encoded_size(count)));
  reference_.sum_encode(on_host, count, factor, expected.data(), nullptr, kTypes[0], rounding);
  cuda_.sum_encode(on_device, count, factor, in_place.data(), nullptr, kTypes[0], nullptr,
                   rounding);
  expect_equal(read(in_place), expected, "sum_encode into a piece");
}

}  // namespace agoq::testing
