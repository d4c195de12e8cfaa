#include <cstdlib>
#include <string>

#include "agoqcomm/codec.h"
#include "agoqcomm/error.h"

namespace agoq {
namespace {

struct IsaInfo {
  CpuIsa isa;
  const char* name;
};
constexpr IsaInfo kIsas[] = {
    {CpuIsa::kScalar, "scalar"},
    {CpuIsa::kAvx2, "avx2"},
    {CpuIsa::kAvx512, "avx512"},
};

}  // namespace

std::string_view to_string(CpuIsa isa) noexcept {
  for (const IsaInfo& info : kIsas) {
    if (info.isa == isa) return info.name;
  }
  return "unknown";
}

bool is_supported(CpuIsa isa) noexcept {
#if defined(__x86_64__)
  // The builtin reads cpuid and also, through xgetbv, whether the system saves the registers.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") &&
                    __builtin_cpu_supports("fma");
  switch (isa) {
    case CpuIsa::kScalar:
      return true;
    case CpuIsa::kAvx2:
      return avx2;
    case CpuIsa::kAvx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  }
  return false;
#else
  return isa == CpuIsa::kScalar;
#endif
}

CpuIsa selected_cpu_isa() {
  const char* wanted = std::getenv("AGOQ_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') {
    CpuIsa best = CpuIsa::kScalar;
    for (const IsaInfo& info : kIsas) {
      if (is_supported(info.isa)) best = info.isa;
    }
    return best;
  }
  for (const IsaInfo& info : kIsas) {
    if (std::string_view(wanted) != info.name) continue;
    if (is_supported(info.isa)) return info.isa;
    throw Error(ErrorCode::kUnsupported,
                "AGOQ_CPU_ISA asks for '" + std::string(wanted) +
                    "', which this CPU or build lacks; unset it to use the best there is");
  }
  throw Error(ErrorCode::kInvalidArgument,
              "AGOQ_CPU_ISA is '" + std::string(wanted) + "'; it may be scalar, avx2 or avx512");
}

}  // namespace agoq
