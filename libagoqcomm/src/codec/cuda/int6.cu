#include "codec/cuda/format_launches.cuh"
#include "format/int6.h"

template const agoq::cuda::FormatLaunches& agoq::cuda::format_launches<agoq::Int6>();
