// What the device collectives need to know of a type of device: one row for each that has kernels.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "agoqcomm/block_format.h"
#include "agoqcomm/device_codec.h"
#include "agoqcomm/device_row_codec.h"
#include "agoqcomm/device_runtime.h"

namespace agoq {

struct DeviceSupport {
  DeviceRuntime* runtime = nullptr;  ///< Lives as long as the process.
  std::function<std::unique_ptr<DeviceCodec>(const BlockFormat&)> make_codec;
  std::function<std::unique_ptr<DeviceRowCodec>(const BlockFormat&)> make_row_codec;
  /// Calls of larger groups are exact: a sum takes a piece of every rank.
  int max_ranks = 0;
};

/// CUDA; nullopt where this build has no kernels. Throws Error(kUnsupported) where it has some that
/// cannot run: ranks would disagree silently on what is quantized.
std::optional<DeviceSupport> cuda_support();

}  // namespace agoq
