// The quantized collectives of tensors that are on a device. The caller's thread puts all of a call
// on the group's stream, and returns.
#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "agoqcomm/device_staging.h"
#include "agoqcomm/error.h"
#include "backend.h"
#include "c10d_device_transport.h"
#include "errors.h"
#include "row_major.h"
#include "tensor_checks.h"

namespace agoq {
namespace {

std::vector<std::int64_t> even_counts(std::int64_t count, int size) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(size), count / size);
}

}  // namespace

bool AgoqBackend::device_serves(const Call& call, const at::Tensor& tensor) const {
  return call.reason == ExactReason::kNone && tensor.layout() == at::kStrided &&
         kernels_serve(tensor.device().type());
}

bool AgoqBackend::kernels_serve(c10::DeviceType type) const {
  const auto support = device_support_.find(type);
  return support != device_support_.end() && size_ <= support->second.max_ranks;
}

std::optional<bool> AgoqBackend::served_on_device(const std::vector<Call>& calls,
                                                  const at::Tensor& tensor) const {
  const auto served = std::count_if(calls.begin(), calls.end(),
                                    [&](const Call& call) { return device_serves(call, tensor); });
  if (served != 0 && served != static_cast<std::ptrdiff_t>(calls.size())) return std::nullopt;
  return served != 0;
}

WorkPtr AgoqBackend::one_by_one(std::size_t count, const TensorList& outputs,
                                const std::function<WorkPtr(std::size_t)>& call) const {
  std::vector<WorkPtr> works;
  for (std::size_t i = 0; i < count; ++i) {
    // None between startCoalescing() and endCoalescing().
    if (auto work = call(i)) works.push_back(std::move(work));
  }
  return works.empty() ? nullptr : c10::make_intrusive<GroupWork>(rank_, std::move(works), outputs);
}

DeviceGroup& AgoqBackend::device_group(c10::Device device) {
  std::lock_guard lock(devices_mutex_);
  auto& group = device_groups_[device];
  if (group) return *group;
  const auto& support = device_support_.at(device.type());
  const c10::impl::VirtualGuardImpl guard(device.type());
  if (support.runtime->is_capturing(guard.getStreamNativeHandle(guard.getStream(device)))) {
    throw Error(ErrorCode::kInvalidArgument,
                "agoq: the first call of a group on " + device.str() +
                    " is captured in a graph; make one before the capture, since it prepares "
                    "streams and memory");
  }
  const auto make_transport = [&](DeviceStreams& streams) -> std::unique_ptr<DeviceTransport> {
    const auto backend = inner(device.type());
    if (orders_streams(*backend)) {
      return std::make_unique<C10dDeviceTransport>(backend, streams);
    }
    if (!device_transport_) {
      throw Error(ErrorCode::kUnsupported,
                  "agoq: over host memory a group serves one device a rank, and this rank has used "
                  "another one before " +
                      device.str() + ".");
    }
    return make_staging_transport(std::move(device_transport_), streams, timeout_.load());
  };
  const bool had_transport = device_transport_ != nullptr;
  try {
    group =
        std::make_unique<DeviceGroup>(device, support, options_->core, make_transport, callbacks_,
                                      [this](const std::string& reason) { fail(reason); });
  } catch (...) {
    if (!had_transport || device_transport_) throw;
    // Its connections went with it, and other ranks wait there: no later call can be served.
    throw Error(ErrorCode::kSystem, "agoq: the group could not be prepared for " + device.str() +
                                        ": " + first_line(std::current_exception()));
  }
  return *group;
}

WorkPtr AgoqBackend::on_device(const Call& call, const TensorList& inputs,
                               const TensorList& outputs, const WorkspaceOf& workspace,
                               const DeviceGroup::Body& body) {
  require_healthy();
  if (issue_lock_.is_open_here()) {
    // The inner backend is in the middle of a group of its own operations.
    std::lock_guard lock(mutex_);
    coalesced_outputs_.insert(coalesced_outputs_.end(), outputs.begin(), outputs.end());
    deferred_.push_back([=, this] { return on_device(call, inputs, outputs, workspace, body); });
    return nullptr;
  }
  const auto sequence = ++sequence_;
  const std::string words = "agoq: " + std::string(to_string(call.operation)) + " (call " +
                            std::to_string(sequence) + " on rank " + std::to_string(rank_) + ")";
  WorkPtr work;
  const auto error = serve([&] {
    auto& group = device_group(outputs.at(0).device());
    std::lock_guard issuing(issue_lock_);
    work = group.run({rank_, call.type, sequence, call.title, words,
                      timeout_or_default(call.timeout), static_cast<float>(call.factor)},
                     inputs, outputs, workspace(group.communicator()), body);
  });
  if (error) std::rethrow_exception(error);
  return work;
}

WorkPtr AgoqBackend::device_all_reduce(const Call& call, const TensorList& tensors) {
  return on_device(
      call, tensors, tensors,
      [call](const DeviceCommunicator& communicator) {
        return communicator.all_reduce_workspace(call.count, call.data_type, call.reduce);
      },
      [call, tensors](DeviceCommunicator& communicator, const DeviceCall& device) {
        const auto all_reduce = [&](void* data) {
          communicator.all_reduce(data, data, call.count, call.data_type, call.reduce, device);
        };
        if (tensors.size() == 1) {
          const RowMajor rows(tensors[0]);
          all_reduce(rows.data());
          return rows.write_back();
        }
        TensorList flat;
        for (const auto& tensor : tensors) flat.push_back(tensor.reshape({-1}));
        const auto buffer = at::cat(flat);
        all_reduce(buffer.data_ptr());
        std::int64_t start = 0;
        for (const auto& tensor : tensors) {
          tensor.copy_(buffer.narrow(0, start, tensor.numel()).view(tensor.sizes()));
          start += tensor.numel();
        }
      });
}

WorkPtr AgoqBackend::device_reduce_scatter(const std::vector<Call>& calls,
                                           const TensorList& outputs,
                                           const std::vector<TensorList>& inputs) {
  const int size = size_;
  // One tensor is the chunks of all ranks in a row.
  const auto counts_of_call = [calls, inputs, size](std::size_t i) {
    return inputs[i].size() == 1 ? even_counts(calls[i].count, size) : counts_of(inputs[i]);
  };
  return on_device(
      calls[0], flatten(inputs), outputs,
      [=](const DeviceCommunicator& communicator) {
        std::size_t bytes = 0;
        for (std::size_t i = 0; i < calls.size(); ++i) {
          bytes = std::max(bytes, communicator.reduce_scatter_workspace(
                                      counts_of_call(i), calls[i].data_type, calls[i].reduce));
        }
        return bytes;
      },
      [=](DeviceCommunicator& communicator, const DeviceCall& device) {
        for (std::size_t i = 0; i < calls.size(); ++i) {
          const auto parts =
              inputs[i].size() == 1 ? parts_of(inputs[i][0].contiguous(), size) : inputs[i];
          const RowMajor rows(outputs[i]);
          const RowMajorList chunks(parts);
          communicator.reduce_scatter(chunks.pointers<const void*>(), counts_of_call(i),
                                      rows.data(), calls[i].data_type, calls[i].reduce, device);
          rows.write_back();
        }
      });
}

WorkPtr AgoqBackend::device_all_gather(const std::vector<Call>& calls,
                                       const std::vector<TensorList>& outputs,
                                       const TensorList& inputs) {
  const int size = size_;
  const auto counts_of_call = [calls, outputs, size](std::size_t i) {
    return outputs[i].size() == 1 ? even_counts(calls[i].count, size) : counts_of(outputs[i]);
  };
  return on_device(
      calls[0], inputs, flatten(outputs),
      [=](const DeviceCommunicator& communicator) {
        std::size_t bytes = 0;
        for (std::size_t i = 0; i < calls.size(); ++i) {
          bytes = std::max(
              bytes, communicator.all_gather_workspace(counts_of_call(i), calls[i].data_type));
        }
        return bytes;
      },
      [=](DeviceCommunicator& communicator, const DeviceCall& device) {
        for (std::size_t i = 0; i < calls.size(); ++i) {
          const RowMajor rows(inputs[i]);
          const RowMajorList wholes(outputs[i]);
          const RowMajorList chunks(outputs[i].size() == 1 ? parts_of(wholes.tensors()[0], size)
                                                           : wholes.tensors());
          communicator.all_gather(rows.data(), chunks.pointers<void*>(), counts_of_call(i),
                                  calls[i].data_type, device);
          wholes.write_back();
        }
      });
}

std::vector<WorkPtr> AgoqBackend::run_deferred() {
  std::vector<std::function<WorkPtr()>> deferred;
  {
    std::lock_guard lock(mutex_);
    deferred.swap(deferred_);
  }
  std::vector<WorkPtr> works;
  for (const auto& call : deferred) works.push_back(call());
  return works;
}

void AgoqBackend::abort_devices(const std::string& reason) noexcept {
  std::lock_guard lock(devices_mutex_);
  for (const auto& [device, group] : device_groups_) {
    if (group) group->abort(reason);
  }
}

bool AgoqBackend::drain_devices(std::chrono::milliseconds limit) const {
  std::lock_guard lock(devices_mutex_);
  bool drained = true;
  for (const auto& [device, group] : device_groups_) {
    if (group) drained = group->drain(limit) && drained;
  }
  return drained;
}

Stats AgoqBackend::stats() const {
  auto stats = communicator_->stats();
  std::lock_guard lock(devices_mutex_);
  for (const auto& [device, group] : device_groups_) {
    if (!group) continue;
    const auto of_device = group->stats();
    for (std::size_t i = 0; i < stats.size(); ++i) stats[i] += of_device[i];
  }
  return stats;
}

void AgoqBackend::reset_stats() {
  communicator_->reset_stats();
  std::lock_guard lock(devices_mutex_);
  for (const auto& [device, group] : device_groups_) {
    if (group) group->reset_stats();
  }
}

std::string AgoqBackend::describe_devices() const {
  std::string text;
  for (const auto& [type, support] : device_support_) {
    text += c10::DeviceTypeName(type, true) + " tensors: ";
    text += size_ <= support.max_ranks ? "quantized, algorithm flat whatever the topology\n"
                                       : "exact, since kernels sum up to " +
                                             std::to_string(support.max_ranks) + " ranks' pieces\n";
  }
  std::lock_guard lock(devices_mutex_);
  for (const auto& [device, group] : device_groups_) {
    if (group) text += device.str() + ": " + group->describe();
  }
  return text;
}

}  // namespace agoq
