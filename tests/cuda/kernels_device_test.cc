// The kernels on a real device, by the same cases as in the emulator. Needs no test framework,
// since machines with GPUs are not ours to install things on. Says how many cases passed and
// failed.
//
//   kernels_device_test           all cases
//   kernels_device_test --quick   those of one block length and the lists: for compute-sanitizer's
//                                 tools
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "agoqcomm/cuda_codec.h"
#include "kernel_cases.h"

namespace {

/// ctest's word for a test that could not run.
constexpr int kSkipped = 77;

bool is_quick(const std::string& name) {
  const bool has_scale =
      name.find("_bf16") != std::string::npos || name.find("_fp32") != std::string::npos;
  return !has_scale || name.find("_128_bf16") != std::string::npos;
}

std::string outcome(const agoq::testing::KernelCase& kernel_case) {
  try {
    return kernel_case.run();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (agoq::CudaCodec::device_count() == 0) {
    std::printf("skipped: %s\n", agoq::CudaCodec::is_built() ? "CUDA reports no device"
                                                             : "this build has no CUDA kernels");
    return kSkipped;
  }
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  int passed = 0;
  int failed = 0;
  for (const agoq::testing::KernelCase& kernel_case : agoq::testing::kernel_cases()) {
    if (quick && !is_quick(kernel_case.name)) continue;
    const std::string wrong = outcome(kernel_case);
    ++(wrong.empty() ? passed : failed);
    if (!wrong.empty()) std::printf("FAILED %s: %s\n", kernel_case.name.c_str(), wrong.c_str());
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}
