// Buffers and calls that the codec's tests share.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "agoqcomm/codec.h"
#include "agoqcomm/types.h"
#include "codec_inputs.h"

namespace agoq::testing {

inline std::vector<CpuIsa> supported_isas() {
  std::vector<CpuIsa> isas;
  for (const CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    if (is_supported(isa)) isas.push_back(isa);
  }
  return isas;
}

/// Memory for exactly `size` bytes at a chosen distance from a 64-byte boundary, between canaries.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::int64_t size, int misalignment = 0)
      : size_(size), storage_(static_cast<std::size_t>(size) + 3 * kGuard, kCanary) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    begin_ = kGuard + (64 - address % 64) % 64 + static_cast<std::size_t>(misalignment);
  }

  std::byte* data() { return storage_.data() + begin_; }
  Bytes contents() { return Bytes(data(), data() + size_); }
  /// Fails the running test when anything around the buffer was written to.
  void expect_intact() const {
    std::int64_t damaged = 0;
    for (std::size_t i = 0; i < storage_.size(); ++i) {
      const bool inside = i >= begin_ && i < begin_ + static_cast<std::size_t>(size_);
      damaged += !inside && storage_[i] != kCanary;
    }
    EXPECT_EQ(damaged, 0) << "bytes written outside a buffer of " << size_;
  }

 private:
  static constexpr std::size_t kGuard = 128;
  static constexpr std::byte kCanary{0xA7};
  std::int64_t size_;
  Bytes storage_;
  std::size_t begin_ = 0;
};

inline Bytes encode(const Codec& codec, const Bytes& values, DataType type,
                    const Rounding& rounding = {}) {
  const auto count = static_cast<std::int64_t>(values.size() / size_of(type));
  GuardedBuffer encoded(WireLayout(codec.format(), count).total_bytes());
  codec.encode(values.data(), type, count, encoded.data(), rounding);
  encoded.expect_intact();
  return encoded.contents();
}

inline std::vector<float> decode(const Codec& codec, const Bytes& encoded, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  codec.decode(encoded.data(), count, values.data(), DataType::kFloat32);
  return values;
}

}  // namespace agoq::testing
