#include "codec/cuda/format_launches.cuh"
#include "format/e2m3.h"

template const agoq::cuda::FormatLaunches& agoq::cuda::format_launches<agoq::E2m3>();
