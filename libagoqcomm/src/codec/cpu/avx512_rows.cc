// Rows on AVX-512.
#include "codec/cpu/avx512.h"
#include "codec/cpu/row_loops.h"

namespace agoq {

const RowKernels* avx512_row_kernels() { return &kRowKernels<Avx512>; }

}  // namespace agoq
