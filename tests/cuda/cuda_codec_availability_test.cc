// The library's own CudaCodec, not the emulated one: what it says on a machine that cannot serve
// it.
#include <gtest/gtest.h>

#include <string>

#include "agoqcomm/cuda_codec.h"
#include "expect_error.h"

namespace agoq::testing {
namespace {

TEST(CudaCodecAvailability, IsToldAtConstruction) {
  if (CudaCodec::device_count() > 0) {
    EXPECT_TRUE(CudaCodec::is_built());
    EXPECT_EQ(CudaCodec(BlockFormat{}).format(), BlockFormat{});
    return;
  }
  const std::string words = CudaCodec::is_built() ? "CUDA reports no device; use Codec"
                                                  : "this build of libagoqcomm has no CUDA kernels";
  expect_error(ErrorCode::kUnsupported, words, [] { CudaCodec{BlockFormat{}}; });
}

}  // namespace
}  // namespace agoq::testing
