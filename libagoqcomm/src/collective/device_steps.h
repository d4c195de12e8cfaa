// What the steps of the device collectives are made of: each function puts one stage of one step on
// the streams. In which order they are called is device_collectives.h's part.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "agoqcomm/device_codec.h"
#include "agoqcomm/device_transport.h"
#include "agoqcomm/stats.h"
#include "collective/chunk_plan.h"
#include "collective/device_lanes.h"
#include "collective/device_slots.h"

namespace agoq {

/// What all calls of a group have in common.
struct DeviceGroup {
  DeviceTransport& transport;
  const DeviceCodec& codec;
  DeviceLanes& lanes;
};

/// What all steps of a call have in common.
struct DeviceStepArguments {
  DataType type = DataType::kFloat32;
  float factor = 1.0f;  ///< Times every sum.
  Rounding rounding;    ///< Without stage and first_element.
  void* stream = nullptr;
};

/// Whose segments are decoded: where this rank's own sum wrote its values, only the others'.
enum class Results : std::uint8_t { kOfOthers, kOfAll };

/// Not thread-safe; lives for one call. An empty segment is skipped, but never an exchange, since
/// all ranks make equally many. How a segment is encoded is for those to say who derive from it.
class DeviceSteps {
 public:
  DeviceSteps(const DeviceGroup& group, const DeviceStepArguments& arguments, const ChunkPlan& plan,
              const DeviceSlots& slots, OperationStats& stats);
  virtual ~DeviceSteps() = default;

  std::int64_t count() const { return plan_.steps(); }

  /// Encodes the pieces for the other ranks and exchanges them; chunks[r] is the piece of rank r's
  /// chunk.
  void send_pieces(std::int64_t step, std::span<const void* const> chunks);
  /// Sums the pieces of this rank's segment to its place in `out`, its chunk.
  void sum(std::int64_t step, const void* own, void* out);
  /// The same, encoded, exchanged with all ranks; `out` gets what they will decode.
  void sum_and_send(std::int64_t step, const void* own, void* out);
  /// Encodes this rank's segment and exchanges it.
  void send_result(std::int64_t step, const void* own);
  /// Decodes the exchanged segments; chunks[r] is rank r's chunk.
  void take_results(std::int64_t step, std::span<void* const> chunks, Results which);

  /// Exchanges the values themselves: chunks[r] receives rank r's chunk, which `own` is here.
  void exchange_values(std::int64_t step, const void* own, std::span<void* const> chunks);
  /// Lets the stream wait for the results of all steps up to this one.
  void await_results(std::int64_t step);

 protected:
  /// Bytes of `count` encoded elements.
  virtual std::int64_t message_bytes(std::int64_t count) const;
  virtual void encode(std::span<const DeviceEncodeSegment> segments, const Rounding& rounding);
  virtual void decode(std::span<const DeviceDecodeSegment> segments);
  virtual void sum_decode(const DeviceSumSegment& segment);

  const DeviceGroup& group() const { return group_; }
  const DeviceStepArguments& arguments() const { return arguments_; }

 private:
  void exchange_results(std::int64_t step);
  void exchange(Traffic traffic, std::int64_t step);
  void add_send(int peer, const void* data, std::int64_t count, std::int64_t bytes);
  void prepare_sum(std::int64_t step, const void* own, void* out);
  DeviceSum sum_settings() const;

  Segment segment(int rank, std::int64_t step) const { return plan_.segment(rank, step); }
  std::int64_t first_element(int rank, std::int64_t step) const {
    return plan_.chunk_offset(rank) + plan_.segment(rank, step).offset;
  }
  /// Where a segment's values are in its chunk.
  template <typename Byte>
  Byte* at(Byte* chunk, std::int64_t offset) const;
  Rounding rounding(std::uint32_t stage) const;

  const DeviceGroup& group_;
  const DeviceStepArguments arguments_;
  const ChunkPlan& plan_;
  const DeviceSlots& slots_;
  OperationStats& stats_;
  const int rank_;

  // Lists of the stage that is being put on the streams.
  std::vector<DeviceEncodeSegment> to_encode_;
  std::vector<DeviceDecodeSegment> to_decode_;
  std::vector<const std::byte*> pieces_;
  DeviceSumSegment to_sum_;
  std::vector<DeviceSend> sends_;
  std::vector<DeviceReceive> receives_;
};

}  // namespace agoq
