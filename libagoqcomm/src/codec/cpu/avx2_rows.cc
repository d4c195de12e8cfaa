// Rows on AVX2.
#include "codec/cpu/avx2.h"
#include "codec/cpu/row_loops.h"

namespace agoq {

const RowKernels* avx2_row_kernels() { return &kRowKernels<Avx2>; }

}  // namespace agoq
