// Builds the tables of one ISA's kernels, one a format and block length.
//
// The kernels must be local to the file that includes this; then so are the tables and lookups.
#pragma once

#include "codec/kernel_table.h"
#include "format/formats.h"

namespace agoq {

/// The table of a class that has all the kernels as static members.
template <class Kernels>
inline constexpr KernelTable kKernelTable = {
    {Kernels::template encode<DataType::kFloat32>, Kernels::template encode<DataType::kBfloat16>,
     Kernels::template encode<DataType::kFloat16>},
    {Kernels::template decode<DataType::kFloat32>, Kernels::template decode<DataType::kBfloat16>,
     Kernels::template decode<DataType::kFloat16>},
    {Kernels::template decode_streamed<DataType::kFloat32>,
     Kernels::template decode_streamed<DataType::kBfloat16>,
     Kernels::template decode_streamed<DataType::kFloat16>},
    Kernels::accumulate,
    {Kernels::template sum_decode<DataType::kFloat32>,
     Kernels::template sum_decode<DataType::kBfloat16>,
     Kernels::template sum_decode<DataType::kFloat16>},
    {Kernels::template sum_encode<DataType::kFloat32>,
     Kernels::template sum_encode<DataType::kBfloat16>,
     Kernels::template sum_encode<DataType::kFloat16>},
};

/// The table of Kernels<Format, block> for a block length known at run time.
template <template <class, int> class Kernels, class Format>
const KernelTable* table_for_block(int block) {
  switch (block) {
    case 32:
      return &kKernelTable<Kernels<Format, 32>>;
    case 64:
      return &kKernelTable<Kernels<Format, 64>>;
    case 128:
      return &kKernelTable<Kernels<Format, 128>>;
    case 256:
      return &kKernelTable<Kernels<Format, 256>>;
    case 512:
      return &kKernelTable<Kernels<Format, 512>>;
    case 1024:
      return &kKernelTable<Kernels<Format, 1024>>;
  }
  return nullptr;
}

/// The same for a format known at run time; a valid format always has a table.
template <template <class, int> class Kernels>
const KernelTable* table_for(ElementFormat format, int block) {
  switch (format) {
#define AGOQ_FORMAT(enumerator, name, bits, type) \
  case ElementFormat::enumerator:                 \
    return table_for_block<Kernels, type>(block);
#include "format/formats.def"
#undef AGOQ_FORMAT
  }
  return nullptr;
}

}  // namespace agoq
