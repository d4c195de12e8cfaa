// What the CUDA kernels must do, as cases that know neither a test framework nor where kernels run:
// each compares CudaCodec with the scalar Codec, byte for byte.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace agoq::testing {

struct KernelCase {
  std::string name;  ///< A C++ identifier.
  /// What was wrong, or nothing.
  std::function<std::string()> run;
};

std::vector<KernelCase> kernel_cases();
/// Those of list_cases.cc, which kernel_cases() includes.
void append_list_cases(std::vector<KernelCase>& cases);
/// Those of row_cases.cc.
void append_row_cases(std::vector<KernelCase>& cases);

}  // namespace agoq::testing
