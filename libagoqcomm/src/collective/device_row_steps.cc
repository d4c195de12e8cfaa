#include "collective/device_row_steps.h"

namespace agoq {

std::int64_t DeviceRowSteps::message_bytes(std::int64_t count) const {
  return RowLayout(codec_.format(), of_.shape(count)).total_bytes();
}

void DeviceRowSteps::encode(std::span<const DeviceEncodeSegment> segments,
                            const Rounding& rounding) {
  if (of_.encoded != nullptr) {
    for (const DeviceEncodeSegment& segment : segments) copy_encoded(segment);
    return;
  }
  if (are_whole_blocks()) return DeviceSteps::encode(segments, rounding);
  for (const DeviceEncodeSegment& segment : segments) {
    Rounding of_segment = rounding;
    of_segment.first_element += segment.first_element;
    codec_.encode(segment.values, arguments().type, of_.shape(segment.count), segment.encoded,
                  arguments().stream, of_segment);
  }
}

void DeviceRowSteps::copy_encoded(const DeviceEncodeSegment& segment) {
  const RowLayout chunk(codec_.format(), {of_.rows, of_.width});
  const RowLayout part(codec_.format(), of_.shape(segment.count));
  const std::int64_t row = of_.own_row(segment.first_element);
  DeviceRuntime& runtime = group().lanes.runtime();
  // With the zero bytes after the codes: the last segment's are the chunk's, no other has any.
  runtime.copy(segment.encoded, of_.encoded + row * chunk.row_code_bytes(),
               static_cast<std::size_t>(part.scale_offset()), arguments().stream);
  runtime.copy(segment.encoded + part.scale_offset(),
               of_.encoded + chunk.scale_offset() + row * chunk.row_scale_bytes(),
               static_cast<std::size_t>(part.total_bytes() - part.scale_offset()),
               arguments().stream);
}

void DeviceRowSteps::decode(std::span<const DeviceDecodeSegment> segments) {
  if (are_whole_blocks()) return DeviceSteps::decode(segments);
  for (const DeviceDecodeSegment& segment : segments) {
    codec_.decode(segment.encoded, of_.shape(segment.count), segment.values, arguments().type,
                  arguments().stream);
  }
}

void DeviceRowSteps::sum_decode(const DeviceSumSegment& segment) {
  if (of_.epilogue.empty() && are_whole_blocks()) return DeviceSteps::sum_decode(segment);
  const Pieces pieces{.encoded = segment.pieces,
                      .own = segment.own,
                      .own_type = arguments().type,
                      .own_rank = group().transport.rank()};
  const std::int64_t row = of_.own_row(segment.first_element);
  codec_.sum_decode(pieces, of_.shape(segment.count), arguments().factor, segment.values,
                    arguments().type, arguments().stream,
                    epilogue_from(of_, row, arguments().type));
}

}  // namespace agoq
