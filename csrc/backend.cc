// How a backend is put together, and how a call runs.
#include "backend.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>

#include <utility>

#include "agoqcomm/error.h"
#include "errors.h"
#include "tensor_checks.h"

namespace agoq {
namespace {

std::map<c10::DeviceType, BackendPtr> by_device(const std::map<std::string, BackendPtr>& inner) {
  std::map<c10::DeviceType, BackendPtr> result;
  for (const auto& [device, backend] : inner) result[c10::Device(device).type()] = backend;
  return result;
}

agoq::Options core_options_of(const AgoqOptions& options) {
  auto core = options.core;
  core.timeout = options.timeout;
  return core;
}

/// The least that `rank` must send for an exact call, in bytes.
std::int64_t least_bytes(const Call& call, int rank, int size) {
  const auto bytes = call.count * static_cast<std::int64_t>(size_of(call.data_type));
  const bool is_root = rank == call.root;
  switch (call.operation) {
    case Operation::kAllReduce:
      return 2 * bytes / size * (size - 1);
    case Operation::kReduceScatter:
    case Operation::kAllGather:
    case Operation::kAllToAll:
      return bytes / size * (size - 1);
    case Operation::kBroadcast:
      return is_root ? bytes : 0;
    case Operation::kScatter:
      return is_root ? bytes * (size - 1) : 0;
    case Operation::kReduce:
    case Operation::kGather:
      return is_root ? 0 : bytes;
    case Operation::kBarrier:
    case Operation::kReceive:
      return 0;
    case Operation::kSend:
      return bytes;
  }
  return 0;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = "[";
  for (const int rank : ranks) text += (text.size() > 1 ? ", " : "") + std::to_string(rank);
  return text + "]";
}

/// Gloo starts what its sockets report with the source file that found it.
bool is_transport_error(const std::string& text) {
  return text.find("gloo/transport/") != std::string::npos;
}

/// An exception that says the group can no longer be used.
bool is_fatal(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& core) {
    return core.code() != ErrorCode::kInvalidArgument && core.code() != ErrorCode::kUnsupported;
  } catch (...) {
    return false;
  }
}

/// A rank that fails leaves the group, so that the next one may hear of it before it hears of the
/// rank that died: whoever is gone is named as well.
std::exception_ptr with_gone_peers(const std::exception_ptr& error, const std::vector<int>& gone) {
  if (gone.empty()) return error;
  try {
    std::rethrow_exception(error);
  } catch (const Error& core) {
    return std::make_exception_ptr(Error(
        core.code(),
        std::string(core.what()) + "; the processes of these ranks are gone: " + ranks_text(gone),
        core.peer()));
  }
}

}  // namespace

AgoqBackend::AgoqBackend(int rank, int size, OptionsPtr options, Parts parts)
    : Backend(rank, size),
      options_(std::move(options)),
      inner_(by_device(parts.inner)),
      peers_(std::move(parts.peers)),
      make_backend_(std::move(parts.make_backend)),
      device_support_(std::move(parts.devices)),
      core_serves_exact_(parts.transport->name() != "gloo"),
      timeout_(options_->timeout),
      communicator_(std::make_unique<Communicator>(
          std::move(parts.transport), core_options_of(*options_), std::move(parts.topology))),
      callbacks_(std::make_shared<CallbackPool>()),
      worker_(std::make_unique<Worker>()),
      device_transport_(std::move(parts.device_transport)) {
  init();
}

AgoqBackend::~AgoqBackend() {
  shutdown();
  decltype(device_groups_) groups;
  {
    std::lock_guard lock(devices_mutex_);
    groups.swap(device_groups_);
  }
  // Without the lock: this ends the groups' watches, one of which may be in fail() and want it.
  groups.clear();
  worker_.reset();
}

BackendPtr AgoqBackend::inner(c10::DeviceType type) const {
  const auto found = inner_.find(type);
  TORCH_CHECK_NOT_IMPLEMENTED(
      found != inner_.end(), "agoq: this group has no backend for ",
      c10::DeviceTypeName(type, true),
      " tensors: it serves CPU tensors, and CUDA tensors where torch sees a GPU and has NCCL.");
  return found->second;
}

std::string AgoqBackend::describe() const {
  std::string text = communicator_->describe();
  if (!text.empty() && text.back() != '\n') text += '\n';
  text += "timeout " + std::to_string(timeout_.load().count()) + " ms\n";
  for (const auto& [device, backend] : inner_) {
    text += "inner backend for " + c10::DeviceTypeName(device, true) + ": " +
            backend->getBackendName() + "\n";
  }
  return text + describe_devices();
}

WorkPtr AgoqBackend::enqueue(const Call& call, bool async, const TensorList& inputs,
                             const TensorList& outputs, std::function<void()> body) {
  require_healthy();
  if (!async && !issue_lock_.is_open_here()) {
    std::exception_ptr error;
    const bool served = worker_->run_here([&] {
      RECORD_FUNCTION(call.title, c10::ArrayRef<const c10::IValue>{});
      error = serve(body);
    });
    if (error) std::rethrow_exception(error);
    if (served) {
      ++sequence_;
      return nullptr;
    }
  }
  auto work = c10::make_intrusive<AgoqWork>(rank_, call.type, ++sequence_, call.title, inputs,
                                            outputs, callbacks_);
  worker_->submit(
      [this, work, title = call.title, body = std::move(body), caller = at::ThreadLocalState()] {
        at::ThreadLocalStateGuard as_caller(caller);
        RECORD_FUNCTION(std::string(title) + " (worker)", c10::ArrayRef<const c10::IValue>{});
        work->complete(serve(body));
      });
  return coalesced(std::move(work), at::kCPU, outputs);
}

std::exception_ptr AgoqBackend::serve(const std::function<void()>& body) {
  at::NoGradGuard no_grad;
  try {
    body();
    return nullptr;
  } catch (...) {
    auto error = std::current_exception();
    const bool fatal = is_fatal(error);
    if (fatal) error = with_gone_peers(error, peers_.gone());
    error = to_torch_error(error);
    if (fatal) fail(first_line(error));
    return error;
  }
}

WorkPtr AgoqBackend::exact(const Call& call, const TensorList& inputs, const TensorList& outputs,
                           Issue issue) {
  const auto& tensors = inputs.empty() ? outputs : inputs;
  TORCH_CHECK_VALUE(!tensors.empty(), "agoq: ", to_string(call.operation), " got no tensor.");
  const auto device = tensors[0].device().type();
  if (device != at::kCPU) {
    const auto backend = inner(device);
    ++sequence_;
    // Not exact by the contract, but for want of kernels.
    const auto reason = call.reason == ExactReason::kNone ? ExactReason::kDevice : call.reason;
    communicator_->record_exact(call.operation, reason, call.count, least_bytes(call, rank_, size_),
                                0);
    return coalesced(issue_on_device(*backend, issue), device, outputs);
  }
  return enqueue(call, true, inputs, outputs,
                 [this, call, issue = std::move(issue)] { run_exact(call, issue); });
}

WorkPtr AgoqBackend::issue_on_device(c10d::Backend& backend, const Issue& issue) {
  std::lock_guard issuing(issue_lock_);
  return issue(backend);
}

void AgoqBackend::run_exact(const Call& call, const Issue& issue) {
  const auto start = std::chrono::steady_clock::now();
  // Splits of an all-to-all and entries of a sparse tensor may differ between ranks.
  const bool counts_agree =
      call.operation != Operation::kAllToAll && call.reason != ExactReason::kLayout;
  communicator_->check_call(call.operation, call.data_type, call.reduce,
                            counts_agree ? call.count : 0, call.root, core_options(call));
  wait_for_inner(call, issue);
  communicator_->record_exact(call.operation, call.reason, call.count,
                              least_bytes(call, rank_, size_), seconds_since(start));
}

void AgoqBackend::wait_for_inner(const Call& call, const Issue& issue) {
  const auto backend = inner(at::kCPU);
  // What the inner backend refuses outright is the caller's mistake and leaves the group usable.
  const auto work = issue(*backend);
  try {
    work->wait();
  } catch (...) {
    const auto cause = std::current_exception();
    const auto gone = peers_.gone();
    const auto reason = first_line(cause);
    // A type or operation that it cannot serve; all ranks learn that alike.
    if (gone.empty() && !is_transport_error(reason)) throw;
    const auto text = "agoq: " + std::string(to_string(call.operation)) + " (exact, over " +
                      backend->getBackendName() + ") failed on rank " + std::to_string(rank_) +
                      "; " + backend->getBackendName() + " says: " + reason;
    const bool timed_out = reason.find("imed out") != std::string::npos;
    throw Error(gone.empty() && timed_out ? ErrorCode::kTimeout : ErrorCode::kPeerFailed, text,
                gone.empty() ? std::nullopt : std::optional<int>(gone.front()));
  }
}

bool AgoqBackend::core_serves(const Call& call, const at::Tensor& tensor) const {
  if (!tensor.is_cpu() || call.reason == ExactReason::kLayout) return false;
  return call.reason == ExactReason::kNone || core_serves_exact_;
}

CallOptions AgoqBackend::core_options(const Call& call) const {
  return {timeout_or_default(call.timeout), static_cast<float>(call.factor)};
}

std::chrono::milliseconds AgoqBackend::timeout_or_default(std::chrono::milliseconds timeout) const {
  return timeout == c10d::kUnsetTimeout ? timeout_.load() : timeout;
}

void AgoqBackend::fail(const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = reason;
  }
  communicator_->abort(reason);
  abort_devices(reason);
}

void AgoqBackend::require_healthy() const {
  std::lock_guard lock(mutex_);
  if (failure_.empty()) return;
  throw_backend_error("agoq: this group has failed before, make a new one; its first error was: " +
                      failure_);
}

}  // namespace agoq
