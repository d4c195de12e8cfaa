// The NCCL transport: one group of sends and receives an exchange.
#include <chrono>
#include <mutex>
#include <thread>

#include "agoqcomm/error.h"
#include "agoqcomm/nccl.h"
#include "transport/device/exchange_check.h"
#include "transport/nccl/nccl_library.h"

namespace agoq {
namespace {

constexpr std::string_view kName = "nccl";
// How long a communicator that never blocks may take to put a group on the stream, connecting to
// its peers included.
constexpr std::chrono::minutes kStartLimit{10};

class NcclTransport final : public DeviceTransport {
 public:
  NcclTransport(nccl::Library library, void* communicator)
      : library_(std::move(library)), communicator_(communicator) {
    check(library_.count(communicator, &size_), "ncclCommCount");
    check(library_.user_rank(communicator, &rank_), "ncclCommUserRank");
  }

  std::string_view name() const override { return kName; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void exchange(std::span<const DeviceSend> sends, std::span<const DeviceReceive> receives,
                void* stream) override {
    check_exchange(kName, rank_, size_, sends, receives);
    if (const std::string words = failure(); !words.empty()) {
      throw Error(ErrorCode::kAborted, words);
    }
    if (sends.empty() && receives.empty()) return;
    try {
      put_group(sends, receives, stream);
    } catch (const Error& error) {
      fail(error.what());
      throw;
    }
  }

  bool can_be_captured() const override { return true; }

  std::string error() override {
    if (std::string words = failure(); !words.empty()) return words;
    int error = nccl::kSuccess;
    const int asked = library_.async_error(communicator_, &error);
    if (asked != nccl::kSuccess) error = asked;
    if (error == nccl::kSuccess || error == nccl::kInProgress) return "";
    fail(describe(error, "a running exchange"));
    return failure();
  }

  void abort(const std::string& reason) noexcept override {
    try {
      fail(reason);
    } catch (...) {
      // Out of memory for the words, and NCCL itself is not asked for anything here.
    }
  }

 private:
  void put_group(std::span<const DeviceSend> sends, std::span<const DeviceReceive> receives,
                 void* stream) {
    check(library_.group_start(), "ncclGroupStart");
    int result = nccl::kSuccess;
    const char* function = nullptr;
    const auto put = [&](int outcome, const char* name) {
      if (result != nccl::kSuccess || outcome == nccl::kInProgress) return;
      result = outcome;
      function = name;
    };
    for (const DeviceReceive& receive : receives) {
      put(library_.receive(receive.data, receive.bytes, nccl::kUint8, receive.peer, communicator_,
                           stream),
          "ncclRecv");
    }
    for (const DeviceSend& send : sends) {
      put(library_.send(send.data, send.bytes, nccl::kUint8, send.peer, communicator_, stream),
          "ncclSend");
    }
    // Also after a failure: a group that stays open would swallow the owner's next calls.
    const int ended = library_.group_end();
    check(result, function);
    check(ended == nccl::kInProgress ? finished() : ended, "ncclGroupEnd");
  }

  // What became of a group that a communicator with `blocking = 0` puts on the stream by itself.
  // The stream holds it only then, and what follows must stand behind it.
  int finished() {
    const auto deadline = std::chrono::steady_clock::now() + kStartLimit;
    int error = nccl::kInProgress;
    while (error == nccl::kInProgress) {
      check(library_.async_error(communicator_, &error), "ncclCommGetAsyncError");
      if (error == nccl::kInProgress && std::chrono::steady_clock::now() >= deadline) break;
      if (error == nccl::kInProgress) std::this_thread::yield();
    }
    return error;
  }

  void check(int error, const char* function) const {
    if (error == nccl::kSuccess) return;
    throw Error(error == nccl::kRemoteError ? ErrorCode::kPeerFailed : ErrorCode::kSystem,
                describe(error, function));
  }

  std::string describe(int error, const char* what) const {
    const char* name = library_.error_string(error);
    const char* more = library_.last_error(communicator_);
    std::string words = std::string(what) + " failed on rank " + std::to_string(rank_) + ": " +
                        (name == nullptr ? "error " + std::to_string(error) : name);
    if (more != nullptr && *more != '\0') words += " (" + std::string(more) + ")";
    return words + "; NCCL is " + library_.path + ", and NCCL_DEBUG=WARN lets it say more";
  }

  std::string failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  void fail(const std::string& words) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = words;
  }

  const nccl::Library library_;
  void* const communicator_;
  int rank_ = 0;
  int size_ = 0;

  mutable std::mutex mutex_;
  std::string failure_;  // The first failure's words; empty while there is none.
};

}  // namespace

std::unique_ptr<DeviceTransport> make_nccl_transport(void* communicator) {
  if (communicator == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "make_nccl_transport: the communicator is null; give an ncclComm_t that "
                "ncclCommInitRank() has made");
  }
  return std::make_unique<NcclTransport>(nccl::load(), communicator);
}

}  // namespace agoq
