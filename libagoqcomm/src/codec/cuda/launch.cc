#include "codec/cuda/launch.h"

#include "codec/cuda/format_launches.h"
#include "format/formats.h"

namespace agoq::cuda {
namespace {

const FormatLaunches& launches_of(ElementFormat format) {
  switch (format) {
#define AGOQ_FORMAT(enumerator, name, bits, type) \
  case ElementFormat::enumerator:                 \
    return format_launches<type>();
#include "format/formats.def"
#undef AGOQ_FORMAT
  }
  return format_launches<Int8>();  // CudaCodec has validated the format
}

}  // namespace

int launch_encode(ElementFormat format, bool stochastic, const EncodeArguments& arguments,
                  const Launch& launch) {
  return launches_of(format).encode(stochastic, arguments, launch);
}

int launch_decode(ElementFormat format, DataType type, const DecodeArguments& arguments,
                  const Launch& launch) {
  return launches_of(format).decode(type, arguments, launch);
}

int launch_accumulate(ElementFormat format, const DecodeArguments& arguments,
                      const Launch& launch) {
  return launches_of(format).accumulate(arguments, launch);
}

int launch_sum_decode(ElementFormat format, const SumArguments& arguments, const Launch& launch) {
  return launches_of(format).sum_decode(arguments, launch);
}

int launch_sum_encode(ElementFormat format, bool stochastic, const SumArguments& arguments,
                      const Launch& launch) {
  return launches_of(format).sum_encode(stochastic, arguments, launch);
}

int launch_rows(ElementFormat format, const RowArguments& arguments, const Launch& launch) {
  return launches_of(format).rows(arguments, launch);
}

}  // namespace agoq::cuda
