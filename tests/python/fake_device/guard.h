// What the parts of the fake device know of each other.
#pragma once

#include <c10/core/Allocator.h>

#include "machine.h"

namespace fake {

/// Of the calling thread.
int current_stream();
/// What plays the part of a cudaStream_t.
void* native_handle(int stream);
int stream_of_handle(void* handle);
/// What record_stream() does: the memory is not used anew before the stream comes to here.
void record_use(const c10::DataPtr& data, int stream);

}  // namespace fake
