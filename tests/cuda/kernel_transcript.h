// Runs one call on the scalar Codec and on CudaCodec, and notes where they differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agoqcomm/codec.h"
#include "agoqcomm/cuda_codec.h"
#include "codec_inputs.h"
#include "device_buffer.h"

namespace agoq::testing {

/// The pieces of one sum, as they are on the host.
struct HostPieces {
  std::vector<Bytes> encoded;
  int own_rank = -1;
  Bytes own;
  DataType own_type = DataType::kFloat32;
};

class KernelTranscript {
 public:
  explicit KernelTranscript(const BlockFormat& format, int max_thread_blocks = 0)
      : reference_(format, CpuIsa::kScalar), cuda_(format, max_thread_blocks) {}

  const Codec& reference() const { return reference_; }
  const CudaCodec& cuda() const { return cuda_; }
  /// How far buffers of elements lie from a 16-byte boundary, and encoded ones from 8.
  void set_misalignment(int bytes) { misalignment_ = bytes; }
  /// Names what the next calls are about, in messages.
  void set_context(std::string context) { context_ = std::move(context); }

  void encode(const Bytes& values, DataType type, const Rounding& rounding = {});
  void decode(const Bytes& encoded, std::int64_t count);
  void accumulate(const Bytes& encoded, const Bytes& start);
  /// sum_decode, sum_encode with and without decoded output, for every output type.
  void sum(const HostPieces& pieces, std::int64_t count, float factor,
           const Rounding& rounding = {});

  void expect_equal(const Bytes& actual, const Bytes& expected, const std::string& what);
  void expect(bool condition, const std::string& what);
  Bytes read(const DeviceBuffer& buffer);

  /// The first difference, and how many there were; nothing where there was none.
  std::string verdict() const;

 private:
  int encoded_misalignment() const { return misalignment_ / 4 * 4; }
  std::int64_t encoded_size(std::int64_t count) const {
    return WireLayout(reference_.format(), count).total_bytes();
  }

  Codec reference_;
  CudaCodec cuda_;
  int misalignment_ = 0;
  std::string context_;
  std::string first_;
  int failures_ = 0;
  std::int64_t compared_ = 0;
};

}  // namespace agoq::testing
