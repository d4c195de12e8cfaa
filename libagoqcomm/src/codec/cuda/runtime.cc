// DeviceRuntime on CUDA.
#include <cuda.h>
#include <cuda_runtime.h>

#include <string>

#include "agoqcomm/cuda_codec.h"
#include "agoqcomm/device_runtime.h"
#include "agoqcomm/error.h"

namespace agoq {
namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // What is reported here is not for a later call to meet.
  throw Error(ErrorCode::kSystem,
              "CUDA refused to " + std::string(what) + ": " + cudaGetErrorString(error));
}

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t as_event(void* event) { return static_cast<cudaEvent_t>(event); }

// Functions of the driver, asked for at run time: the library must load where there is no driver.
template <typename Function>
Function driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
  constexpr unsigned kDriverVersion = 12000;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &function, kDriverVersion, cudaEnableDefault, &found);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    throw Error(ErrorCode::kUnsupported, "this CUDA driver has no " + std::string(name) +
                                             ", which staging needs; install one for CUDA 12 "
                                             "or later");
  }
  return reinterpret_cast<Function>(function);
}

CUdeviceptr address_of(std::uint32_t* word) {
  void* address = nullptr;
  check(cudaHostGetDevicePointer(&address, word, 0), "map a word of pinned memory");
  return reinterpret_cast<CUdeviceptr>(address);
}

void check_driver(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  throw Error(ErrorCode::kSystem, "CUDA refused to " + std::string(what) + ": driver error " +
                                      std::to_string(static_cast<int>(result)));
}

class CudaRuntime final : public DeviceRuntime {
 public:
  void* create_stream() override {
    int lowest = 0;
    int highest = 0;
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "tell its stream priorities");
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest), "make a stream");
    return stream;
  }
  void destroy_stream(void* stream) noexcept override { cudaStreamDestroy(as_stream(stream)); }

  bool is_capturing(void* stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(as_stream(stream), &status), "tell whether a stream is captured");
    return status != cudaStreamCaptureStatusNone;
  }

  void* create_event() override {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
    return event;
  }
  void destroy_event(void* event) noexcept override { cudaEventDestroy(as_event(event)); }
  void record(void* event, void* stream) override {
    check(cudaEventRecord(as_event(event), as_stream(stream)), "record an event");
  }
  void wait(void* event, void* stream) override {
    check(cudaStreamWaitEvent(as_stream(stream), as_event(event), 0), "let a stream wait");
  }

  void copy(void* to, const void* from, std::size_t bytes, void* stream) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, as_stream(stream)), "copy memory");
  }

  void* allocate_pinned(std::size_t bytes) override {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
          "allocate pinned memory");
    return memory;
  }
  void free_pinned(void* memory) noexcept override { cudaFreeHost(memory); }

  void write_value(std::uint32_t* word, std::uint32_t value, void* stream) override {
    using Write = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
    static const auto write = driver_function<Write>("cuStreamWriteValue32");
    check_driver(write(as_stream(stream), address_of(word), value, CU_STREAM_WRITE_VALUE_DEFAULT),
                 "write a word in a stream's order");
  }
  void wait_value(std::uint32_t* word, std::uint32_t value, void* stream) override {
    using Wait = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
    static const auto wait = driver_function<Wait>("cuStreamWaitValue32");
    check_driver(wait(as_stream(stream), address_of(word), value, CU_STREAM_WAIT_VALUE_GEQ),
                 "let a stream wait for a word");
  }
};

}  // namespace

DeviceRuntime& cuda_runtime() {
  if (CudaCodec::device_count() == 0) {
    throw Error(ErrorCode::kUnsupported,
                "CUDA reports no device; use Communicator, which "
                "computes the same bits on the CPU");
  }
  static CudaRuntime runtime;
  return runtime;
}

}  // namespace agoq
