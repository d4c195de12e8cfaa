#include "codec/cuda/format_launches.cuh"
#include "format/fp4.h"

template const agoq::cuda::FormatLaunches& agoq::cuda::format_launches<agoq::Fp4>();
