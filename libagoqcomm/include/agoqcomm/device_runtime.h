// The few things the device collectives ask of a device: streams, events, copies. The seam behind
// which CUDA stands, and a simulated device in the tests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "agoqcomm/export.h"

namespace agoq {

/// Thread-safe. Everything concerns the calling thread's current device. No function waits for the
/// device. What the device refuses is Error(kSystem).
///
/// A stream is what the caller's framework calls a stream (cudaStream_t), and null is the default
/// stream. Creating and allocating are not for the time of a graph capture.
class AGOQ_API DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  /// A stream that runs beside all others, of the highest priority.
  virtual void* create_stream() = 0;
  virtual void destroy_stream(void* stream) noexcept = 0;
  /// Whether `stream` is being captured in a graph.
  virtual bool is_capturing(void* stream) = 0;

  virtual void* create_event() = 0;
  virtual void destroy_event(void* event) noexcept = 0;
  /// The event happens once what is on the stream now has been done.
  virtual void record(void* event, void* stream) = 0;
  /// What is put on the stream from now on waits for the event as it was last recorded.
  virtual void wait(void* event, void* stream) = 0;

  /// Between device memory and device memory or memory of allocate_pinned(), in any direction.
  virtual void copy(void* to, const void* from, std::size_t bytes, void* stream) = 0;

  /// Host memory that the device copies from and to by itself.
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void free_pinned(void* memory) noexcept = 0;

  // A word of pinned memory by which a stream and a host thread tell each other how far they are.
  // Not for graphs, which would replay the values as they were.

  /// Writes `value` once what is on the stream now has been done and can be seen by the host.
  virtual void write_value(std::uint32_t* word, std::uint32_t value, void* stream) = 0;
  /// What is put on the stream from now on waits until the word has reached `value`, which it may
  /// do by wrapping around.
  virtual void wait_value(std::uint32_t* word, std::uint32_t value, void* stream) = 0;
};

/// CUDA. Throws Error(kUnsupported) in builds without it, and where it reports no device. The one
/// object lives as long as the process.
AGOQ_API DeviceRuntime& cuda_runtime();

}  // namespace agoq
