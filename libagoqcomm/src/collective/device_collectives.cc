#include "collective/device_collectives.h"

namespace agoq {

void device_reduce_scatter(DeviceSteps& steps, std::span<const void* const> in, const void* own,
                           void* out) {
  for (std::int64_t step = 0; step < steps.count() + 1; ++step) {
    if (step < steps.count()) steps.send_pieces(step, in);
    if (step >= 1) steps.sum(step - 1, own, out);
  }
}

void device_all_reduce(DeviceSteps& steps, std::span<const void* const> in, const void* own,
                       std::span<void* const> out, void* own_out) {
  for (std::int64_t step = 0; step < steps.count() + 2; ++step) {
    if (step < steps.count()) steps.send_pieces(step, in);
    if (step >= 1 && step - 1 < steps.count()) steps.sum_and_send(step - 1, own, own_out);
    if (step >= 2) steps.take_results(step - 2, out, Results::kOfOthers);
  }
}

void device_all_gather(DeviceSteps& steps, const void* in, std::span<void* const> out) {
  for (std::int64_t step = 0; step < steps.count() + 1; ++step) {
    if (step < steps.count()) steps.send_result(step, in);
    if (step >= 1) steps.take_results(step - 1, out, Results::kOfAll);
  }
}

void device_exact_all_gather(DeviceSteps& steps, const void* in, std::span<void* const> out) {
  for (std::int64_t step = 0; step < steps.count(); ++step) {
    steps.exchange_values(step, in, out);
  }
  // The last one's end is the end of all: they are on one stream.
  steps.await_results(steps.count() - 1);
}

}  // namespace agoq
