#include "osu/values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace agoq::bench::osu {
namespace {

template <typename Body>
auto with_type(DataType type, Body&& body) {
  switch (type) {
    case DataType::kFloat32:
      return body(float{});
    case DataType::kFloat64:
      return body(double{});
    case DataType::kInt8:
      return body(std::int8_t{});
    case DataType::kInt32:
      return body(std::int32_t{});
    case DataType::kInt64:
      return body(std::int64_t{});
    default:
      throw std::logic_error("the command line has let in an unknown type");
  }
}

}  // namespace

double Buffer::load(std::int64_t index) const {
  const std::byte* const from = bytes_.data() + offset(index);
  if (type_ == DataType::kBfloat16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from, sizeof bits);
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }
  return with_type(type_, [&](auto value) {
    std::memcpy(&value, from, sizeof value);
    return static_cast<double>(value);
  });
}

void Buffer::store(std::int64_t index, double value) {
  std::byte* const to = bytes_.data() + offset(index);
  if (type_ == DataType::kBfloat16) {
    const auto wide = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    const auto bits = static_cast<std::uint16_t>(wide >> 16);
    std::memcpy(to, &bits, sizeof bits);
    return;
  }
  with_type(type_, [&](auto stored) {
    stored = static_cast<decltype(stored)>(value);
    std::memcpy(to, &stored, sizeof stored);
  });
}

void Buffer::fill(int rank) {
  const std::int64_t elements = count();
  for (std::int64_t index = 0; index < elements; ++index) store(index, value_of(rank, index));
}

void Buffer::clear() { std::fill(bytes_.begin(), bytes_.end(), std::byte{0}); }

double value_of(int rank, std::int64_t index) {
  const auto mixed = static_cast<std::uint64_t>(index * 7919 + rank * 104729 + 1);
  return static_cast<double>(mixed * 0x9e3779b97f4a7c15 >> 60) - 8;
}

double sum_of(int ranks, std::int64_t index) {
  double sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += value_of(rank, index);
  return sum;
}

bool is_right(const Buffer& buffer, const std::function<double(std::int64_t)>& expected,
              bool quantized) {
  constexpr double kBound = 0.01;
  double error = 0;
  double norm = 0;
  const std::int64_t count = buffer.count();
  for (std::int64_t index = 0; index < count; ++index) {
    const double truth = expected(index);
    const double difference = buffer.load(index) - truth;
    error += difference * difference;
    norm += truth * truth;
  }
  return quantized ? std::sqrt(error) <= kBound * std::sqrt(norm) : error == 0;
}

}  // namespace agoq::bench::osu
