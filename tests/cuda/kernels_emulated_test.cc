// The kernels' sources, compiled by the host compiler and run in the emulator, against Codec.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <ostream>

#include "agoqcomm/cuda_codec.h"
#include "agoqcomm/error.h"
#include "cuemu/cuemu.h"
#include "kernel_cases.h"
#include "kernel_transcript.h"

namespace agoq::testing {

void PrintTo(const KernelCase& kernel_case, std::ostream* out) { *out << kernel_case.name; }

namespace {

class EmulatedKernels : public ::testing::TestWithParam<KernelCase> {
 protected:
  void TearDown() override { cuemu::set_options({}); }
};

TEST_P(EmulatedKernels, EqualTheScalarCodec) { EXPECT_EQ(GetParam().run(), ""); }

INSTANTIATE_TEST_SUITE_P(Cases, EmulatedKernels, ::testing::ValuesIn(kernel_cases()),
                         [](const auto& info) { return info.param.name; });

/// Memory of which only what is touched exists.
class SparseBuffer {
 public:
  explicit SparseBuffer(std::int64_t size) : size_(static_cast<std::size_t>(size)) {
    data_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~SparseBuffer() { munmap(data_, size_); }
  bool is_mapped() const { return data_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t size_;
  void* data_;
};

TEST(EmulatedKernelsPast2To31, ReachTheLastElement) {
  const BlockFormat format;
  const Codec reference(format, CpuIsa::kScalar);
  const CudaCodec cuda(format);
  const std::int64_t tail = 5 * format.block + 7;
  const std::int64_t skipped = (std::int64_t{1} << 31) + 4 * format.block;
  const std::int64_t count = skipped + tail;
  const WireLayout layout(format, count);
  const SparseBuffer values(2 * count);
  const SparseBuffer encoded(layout.total_bytes());
  const SparseBuffer decoded(2 * count);
  ASSERT_TRUE(values.is_mapped() && encoded.is_mapped() && decoded.is_mapped());
  const Bytes input = make_input(Family::kNormal, DataType::kBfloat16, tail, 1);
  std::memcpy(values.data() + 2 * skipped, input.data(), input.size());
  Bytes expected(static_cast<std::size_t>(WireLayout(format, tail).total_bytes()));
  reference.encode(input.data(), DataType::kBfloat16, tail, expected.data());
  Bytes expected_values(input.size());
  reference.decode(expected.data(), tail, expected_values.data(), DataType::kBfloat16);

  // A full grid takes 2^27 elements a turn, so its first thread blocks take the last elements too.
  cuemu::set_options({.seed = 0, .thread_blocks = 2});
  cuda.encode(values.data(), DataType::kBfloat16, count, encoded.data(), nullptr);
  cuda.decode(encoded.data(), count, decoded.data(), DataType::kBfloat16, nullptr);
  cuemu::set_options({});

  const WireLayout tail_layout(format, tail);
  const std::byte* codes = encoded.data() + skipped;
  const std::byte* scales = encoded.data() + layout.scale_offset() + 2 * (skipped / format.block);
  EXPECT_EQ(Bytes(codes, codes + tail), Bytes(expected.begin(), expected.begin() + tail));
  EXPECT_EQ(Bytes(scales, scales + tail_layout.scale_bytes()),
            Bytes(expected.begin() + tail_layout.scale_offset(), expected.end()));
  const std::byte* last = decoded.data() + 2 * skipped;
  EXPECT_EQ(Bytes(last, last + 2 * tail), expected_values);
}

}  // namespace
}  // namespace agoq::testing
