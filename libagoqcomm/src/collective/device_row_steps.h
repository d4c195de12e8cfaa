// Steps of whole rows on a device: blocks end with their row, and finished rows go through an
// epilogue.
#pragma once

#include "agoqcomm/device_row_codec.h"
#include "collective/device_steps.h"
#include "collective/rows_of_call.h"

namespace agoq {

/// Rows that a segment is a multiple of, so that no zero bytes stand between its codes and its
/// scales but those at the end of the chunk.
inline constexpr std::int64_t kRowsOfSegment = 4;

/// Not thread-safe; lives for one call, whose plan has segments of multiples of kRowsOfSegment.
class DeviceRowSteps final : public DeviceSteps {
 public:
  DeviceRowSteps(const DeviceGroup& group, const DeviceStepArguments& arguments,
                 const ChunkPlan& plan, const DeviceSlots& slots, OperationStats& stats,
                 const DeviceRowCodec& rows, const RowsOfCall& of)
      : DeviceSteps(group, arguments, plan, slots, stats), codec_(rows), of_(of) {}

 protected:
  std::int64_t message_bytes(std::int64_t count) const override;
  void encode(std::span<const DeviceEncodeSegment> segments, const Rounding& rounding) override;
  void decode(std::span<const DeviceDecodeSegment> segments) override;
  void sum_decode(const DeviceSumSegment& segment) override;

 private:
  /// Whether rows are a flat buffer, of which the flat codec takes many segments in one launch.
  bool are_whole_blocks() const { return of_.width % codec_.format().block == 0; }
  void copy_encoded(const DeviceEncodeSegment& segment);

  const DeviceRowCodec& codec_;
  const RowsOfCall of_;
};

}  // namespace agoq
