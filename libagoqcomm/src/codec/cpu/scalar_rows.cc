// Rows one number at a time.
#include <cstdint>

#include "codec/cpu/row_loops.h"
#include "codec/values.h"

namespace agoq {
namespace {

struct OneLane {
  using Vector = float;
  static constexpr int kLanes = 1;

  static float broadcast(float x) { return x; }
  static float add(float a, float b) { return agoq::add(a, b); }
  static float mul(float a, float b) { return agoq::mul(a, b); }
  static float canonical(float x) { return agoq::canonical(x); }
  template <DataType kType>
  static float load(const void* from) {
    return load_value<kType>(from, 0);
  }
  template <DataType kType>
  static void store(void* to, float x) {
    store_value<kType>(to, 0, x);
  }
};

}  // namespace

const RowKernels* scalar_row_kernels() { return &kRowKernels<OneLane>; }

}  // namespace agoq
