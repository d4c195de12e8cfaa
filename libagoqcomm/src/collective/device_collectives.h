// The collectives on device memory: in which order the stages of their steps go onto the streams.
//
// Stages of neighbouring steps take turns, so that the wire has work while kernels run. For an
// all-reduce the compute stream (e: encode, s: sum and encode, d: decode) and the wire (p: pieces,
// r: results) hold
//
//   compute:  e0 | e1 s0 | e2 s1 d0 | e3 s2 d1 | ...
//   wire:     p0 | p1 r0 | p2 r1    | p3 r2    | ...
//
// where p follows its e, s follows its p, r follows its s, and d follows its r. At the end the
// compute stream has waited for everything, which makes it safe to reuse the workspace in its
// order, and closes a graph capture.
#pragma once

#include <span>

#include "collective/device_steps.h"

namespace agoq {

/// in[r] is this rank's piece of rank r's chunk, `own` being that of its own; `out` receives this
/// rank's chunk and may be `own`.
void device_reduce_scatter(DeviceSteps& steps, std::span<const void* const> in, const void* own,
                           void* out);

/// in[r] and out[r] are rank r's chunk in the two buffers, which may be the same memory, `own` and
/// `own_out` those of this rank.
void device_all_reduce(DeviceSteps& steps, std::span<const void* const> in, const void* own,
                       std::span<void* const> out, void* own_out);

/// out[r] receives rank r's chunk; `in`, this rank's, may be its entry there.
void device_all_gather(DeviceSteps& steps, const void* in, std::span<void* const> out);

/// The same with the values themselves. This rank's own entry is left to the caller.
void device_exact_all_gather(DeviceSteps& steps, const void* in, std::span<void* const> out);

}  // namespace agoq
