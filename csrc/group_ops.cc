// Everything about a group that is not a collective: its life, its parts, its settings.
#include <utility>

#include "agoqcomm/error.h"
#include "backend.h"
#include "c10d_device_transport.h"
#include "errors.h"

namespace agoq {
namespace {

/// What destroying a group gives calls that are still on their way; after it they are aborted.
constexpr std::chrono::milliseconds kGrace{2000};

}  // namespace

BackendPtr AgoqBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                              const std::vector<int>& ranks,
                              const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  if (own == ranks.end()) return nullptr;
  // A copy: the parent's options stay as they are.
  const auto* given = dynamic_cast<const AgoqOptions*>(options.get());
  TORCH_CHECK_TYPE(!options || given, "agoq: split takes agoq_comm.Options, not the options of ",
                   options ? options->backend : "", ".");
  auto child = c10::make_intrusive<AgoqOptions>(given ? *given : *options_);

  // torch calls this once for each device type of the group, with one name: all get one backend.
  std::lock_guard lock(mutex_);
  if (last_split_ && !child->group_name.empty() && child->group_name == last_split_name_) {
    if (auto same = last_split_->lock()) return same;
  }
  auto backend = make_backend_(store, static_cast<int>(own - ranks.begin()),
                               static_cast<int>(ranks.size()), child);
  last_split_name_ = child->group_name;
  last_split_ = c10::weak_intrusive_ptr<c10d::Backend>(backend);
  return backend;
}

bool AgoqBackend::supportsCoalescing() const {
  // Only NCCL gains by it; torch batches what it can of CPU calls without.
  for (const auto& [device, backend] : inner_) {
    if (backend->supportsCoalescing()) return true;
  }
  return false;
}

void AgoqBackend::startCoalescing() {
  issue_lock_.open();
  for (const auto& [device, backend] : inner_) {
    if (backend->supportsCoalescing()) backend->startCoalescing();
  }
}

WorkPtr AgoqBackend::endCoalescing() {
  // Until the deferred calls are issued too: all ranks then issue in one order.
  std::lock_guard issuing(issue_lock_);
  issue_lock_.close();
  std::vector<WorkPtr> parts;
  TensorList outputs;
  {
    std::lock_guard lock(mutex_);
    parts.swap(coalesced_);
    outputs.swap(coalesced_outputs_);
  }
  for (const auto& [device, backend] : inner_) {
    if (!backend->supportsCoalescing()) continue;
    if (auto work = backend->endCoalescing()) parts.push_back(std::move(work));
  }
  for (auto& work : run_deferred()) parts.push_back(std::move(work));
  if (parts.size() == 1) return parts[0];
  return c10::make_intrusive<GroupWork>(rank_, std::move(parts), std::move(outputs));
}

WorkPtr AgoqBackend::coalesced(WorkPtr work, c10::DeviceType device, const TensorList& outputs) {
  if (!issue_lock_.is_open_here()) return work;
  std::lock_guard lock(mutex_);
  coalesced_outputs_.insert(coalesced_outputs_.end(), outputs.begin(), outputs.end());
  // Calls of other devices are part of what endCoalescing() of their inner backend returns.
  if (device == at::kCPU) coalesced_.push_back(work);
  return work;
}

void AgoqBackend::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  options_->timeout = timeout;
  for (const auto& [device, backend] : inner_) backend->setTimeout(timeout);
}

void AgoqBackend::setSequenceNumberForGroup() {
  for (const auto& [device, backend] : inner_) backend->setSequenceNumberForGroup();
}

void AgoqBackend::setGroupUid(const std::string& uid) {
  Backend::setGroupUid(uid);
  for (const auto& [device, backend] : inner_) backend->setGroupUid(uid);
}

void AgoqBackend::eagerConnectSingleDevice(at::Device device) {
  inner(device.type())->eagerConnectSingleDevice(device);
}

c10d::ErrorType AgoqBackend::getError() {
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) {
      return failure_.find("Timed out") != std::string::npos ? c10d::ErrorType::TIMEOUT
                                                             : c10d::ErrorType::COMM_ERROR;
    }
  }
  // Gloo keeps no such state; NCCL does.
  for (const auto& [device, backend] : inner_) {
    if (!orders_streams(*backend)) continue;
    const auto error = backend->getError();
    if (error != c10d::ErrorType::SUCCESS) return error;
  }
  return c10d::ErrorType::SUCCESS;
}

void AgoqBackend::abort() {
  fail("agoq: the group was aborted on rank " + std::to_string(rank_) + ".");
  for (const auto& [device, backend] : inner_) backend->abort();
}

void AgoqBackend::shutdown() {
  {
    std::lock_guard lock(mutex_);
    if (shut_down_) return;
    shut_down_ = true;
  }
  if (worker_->drain(kGrace) && drain_devices(kGrace)) {
    // No abort: peers may still be reading what this rank has sent.
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = "agoq: the group was destroyed.";
  } else {
    fail("agoq: the group was destroyed on rank " + std::to_string(rank_) +
         " while calls were on their way; wait for them before dist.destroy_process_group().");
  }
  for (const auto& [device, backend] : inner_) backend->shutdown();
}

}  // namespace agoq
