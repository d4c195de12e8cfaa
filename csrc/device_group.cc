#include "device_group.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "errors.h"

namespace agoq {
namespace {

/// What ending a group gives the device before the group's memory goes away under it.
constexpr std::chrono::milliseconds kGrace{2000};

std::string megabytes(std::size_t bytes) {
  return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB";
}

}  // namespace

DeviceGroup::DeviceGroup(c10::Device device, const DeviceSupport& support,
                         const agoq::Options& options, const MakeTransport& make_transport,
                         std::shared_ptr<CallbackPool> callbacks, DeviceWatch::Fail fail)
    : streams_(device, *support.runtime),
      stream_(streams_.create()),
      callbacks_(std::move(callbacks)),
      workspace_(device) {
  const c10::DeviceGuard guard(device);
  // Before the transport, which only one try can take.
  auto codec = support.make_codec(options.format);
  auto rows = support.make_row_codec(options.format);
  communicator_ =
      std::make_unique<DeviceCommunicator>(make_transport(streams_), std::move(codec), streams_,
                                           options, /*segment_numel=*/0, std::move(rows));
  watch_ = std::make_shared<DeviceWatch>(
      *support.runtime, [this] { return communicator_->error(); }, std::move(fail));
}

DeviceGroup::~DeviceGroup() {
  const c10::DeviceGuard guard(streams_.device());
  bool drained = drain(kGrace);
  if (!drained) {
    abort("agoq: the group was destroyed while calls were on their way.");
    drained = drain(kGrace);
  }
  // After the calls, so that whoever asked hears how they ended.
  watch_->stop();
  // Memory that a device still writes to is better kept.
  if (!drained) static_cast<void>(communicator_.release());
}

std::string DeviceGroup::describe() const {
  std::string text = communicator_->describe();
  if (!text.empty() && text.back() != '\n') text += '\n';
  std::lock_guard lock(mutex_);
  return text + "workspace on " + streams_.device().str() + ": " + megabytes(workspace_.held()) +
         " held, " + megabytes(workspace_.peak()) + " at most so far\n";
}

WorkPtr DeviceGroup::run(const Title& title, const TensorList& inputs, const TensorList& outputs,
                         std::size_t workspace_bytes, const Body& body) {
  std::lock_guard lock(mutex_);
  const auto device = streams_.device();
  const c10::DeviceGuard on_device(device);
  c10::Event start(device.type());
  start.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  start.block(stream_);

  const c10::StreamGuard on_stream(stream_);
  auto* const handle = streams_.handle(stream_);
  const bool capturing = streams_.is_capturing(handle);
  // First, since a body that throws half-way leaves work on the stream.
  for (const auto* list : {&inputs, &outputs}) {
    for (const auto& tensor : *list) {
      if (tensor.has_storage() && tensor.numel() > 0) tensor.record_stream(stream_);
    }
  }
  body(*communicator_, {handle, workspace_.take(workspace_bytes, capturing), title.factor});
  std::optional<DeviceWatch::Number> number;
  if (!capturing) number = watch_->end_call(handle, title.words, title.timeout);
  return c10::make_intrusive<DeviceWork>(title.rank, title.type, title.sequence, title.title,
                                         inputs, outputs, stream_, watch_, number, callbacks_);
}

void DeviceGroup::finish_rows(const void* values, DataType type, RowShape shape, void* out,
                              const RowEpilogue& epilogue) {
  const auto device = streams_.device();
  const c10::DeviceGuard on_device(device);
  auto* const stream =
      streams_.handle(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  communicator_->finish_rows(values, type, shape, out, epilogue, stream);
}

void DeviceGroup::abort(const std::string& reason) noexcept {
  try {
    // Else calls that have ended well would fail too.
    watch_->confirm();
  } catch (...) {
    // Out of memory for words that nobody reads here.
  }
  communicator_->abort(reason);
  try {
    throw_backend_error(reason);
  } catch (...) {
    watch_->fail_all(std::current_exception());
  }
}

}  // namespace agoq
