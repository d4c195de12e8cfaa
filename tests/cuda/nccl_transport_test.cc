// The NCCL transport over a mock of the functions it uses, found as NCCL is found.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "agoqcomm/nccl.h"
#include "fake_world.h"
#include "nccl_mock.h"

namespace agoq::testing {
namespace {

constexpr int kSystemError = 2;
constexpr int kRemoteError = 6;
constexpr int kInProgress = 7;

// The mock calls a plain function.
FakeDevice* device_of_mock = nullptr;
void enqueue(void* stream, int (*work)(void*), void* argument) {
  device_of_mock->enqueue(stream, [=] { return work(argument) != 0; });
}

class NcclTransport : public ::testing::Test {
 protected:
  NcclTransport() : device_(0) {
    setenv("AGOQ_NCCL_PATH", NCCL_MOCK, 1);
    void* library = dlopen(NCCL_MOCK, RTLD_NOW);
    EXPECT_NE(library, nullptr) << dlerror();
    using Find = const NcclMock* (*)();
    mock_ = reinterpret_cast<Find>(dlsym(library, "agoq_nccl_mock"))();
    mock_->set_enqueue(enqueue);
    device_of_mock = &device_;
  }
  ~NcclTransport() override {
    for (const char* function :
         {"ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd", "ncclCommCount"}) {
      mock_->fail(function, 0);
    }
    for (void* communicator : communicators_) mock_->destroy_group(communicator);
    unsetenv("AGOQ_NCCL_PATH");
  }

  std::vector<std::unique_ptr<DeviceTransport>> make_group(int size) {
    std::vector<void*> communicators(static_cast<std::size_t>(size));
    mock_->make_group(size, communicators.data());
    std::vector<std::unique_ptr<DeviceTransport>> transports;
    for (void* communicator : communicators) {
      communicators_.push_back(communicator);
      transports.push_back(make_nccl_transport(communicator));
    }
    return transports;
  }

  // An exchange of rank 0 with rank 1.
  Outcome exchange(DeviceTransport& transport) {
    const DeviceSend send{1, bytes_.data(), 32};
    const DeviceReceive receive{1, bytes_.data() + 32, 32};
    return outcome_of([&] { transport.exchange({&send, 1}, {&receive, 1}, nullptr); });
  }

  const NcclMock* mock_;
  FakeDevice device_;
  std::vector<void*> communicators_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(64);
};

TEST_F(NcclTransport, CollectivesEqualTheHostsUnderManySchedules) {
  for (const int size : {1, 2, 3, 5}) {
    const std::vector<CollectiveCall> calls = mixed_calls(size);
    const Options options = quantize_everything();
    const CallResults expected = host_results(calls, size, options);
    for (unsigned seed = 0; seed < 12; ++seed) {
      FakeDevice device(seed);
      device_of_mock = &device;
      FakeWorld world(device, device, make_group(size), options, kShortSegment);
      expect_equal(world.run(calls), expected, calls, "seed " + std::to_string(seed));
      for (int r = 0; r < size; ++r) EXPECT_EQ(world.rank(r).communicator->error(), "");
    }
  }
}

TEST_F(NcclTransport, KnowsItsGroup) {
  const auto transports = make_group(3);
  EXPECT_EQ(transports[2]->name(), "nccl");
  EXPECT_EQ(transports[2]->rank(), 2);
  EXPECT_EQ(transports[2]->size(), 3);
  EXPECT_TRUE(transports[2]->can_be_captured());
}

TEST_F(NcclTransport, AnErrorOfACallClosesTheGroupAndStays) {
  for (const char* function : {"ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd"}) {
    const auto transports = make_group(2);
    mock_->fail(function, kSystemError);
    const Outcome outcome = exchange(*transports[0]);
    EXPECT_EQ(outcome.error, ErrorCode::kSystem);
    EXPECT_NE(outcome.words.find(std::string(function) + " failed on rank 0"), std::string::npos)
        << outcome.words;
    EXPECT_NE(outcome.words.find("unhandled system error (the mock's last words)"),
              std::string::npos)
        << outcome.words;
    EXPECT_EQ(mock_->open_groups(), 0) << function;
    mock_->fail(function, 0);
    EXPECT_EQ(exchange(*transports[0]).error, ErrorCode::kAborted);
    EXPECT_NE(transports[0]->error().find(function), std::string::npos);
  }
}

TEST_F(NcclTransport, ARemoteErrorIsAPeersFailure) {
  const auto transports = make_group(2);
  mock_->fail("ncclGroupEnd", kRemoteError);
  EXPECT_EQ(exchange(*transports[0]).error, ErrorCode::kPeerFailed);
}

TEST_F(NcclTransport, AnAsynchronousErrorShowsAndStays) {
  const auto transports = make_group(2);
  EXPECT_EQ(transports[1]->error(), "");
  mock_->set_async_error(communicators_[1], kInProgress, 1, kRemoteError);
  EXPECT_EQ(transports[1]->error(), "");
  EXPECT_NE(transports[1]->error().find("remote process exited"), std::string::npos);
  mock_->set_async_error(communicators_[1], 0, 0, 0);
  EXPECT_NE(transports[1]->error(), "");
  EXPECT_EQ(exchange(*transports[1]).error, ErrorCode::kInvalidArgument);  // Peer 1 is itself.
}

TEST_F(NcclTransport, ACommunicatorThatDoesNotBlockIsWaitedForUntilTheStreamHasTheGroup) {
  const auto transports = make_group(2);
  mock_->fail("ncclGroupEnd", kInProgress);
  mock_->set_async_error(communicators_[0], kInProgress, 3, 0);
  EXPECT_FALSE(exchange(*transports[0]).error);
  mock_->set_async_error(communicators_[0], kInProgress, 3, kSystemError);
  EXPECT_EQ(exchange(*transports[0]).error, ErrorCode::kSystem);
}

TEST_F(NcclTransport, AnEmptyExchangeAsksNothingOfNccl) {
  const auto transports = make_group(2);
  mock_->fail("ncclGroupStart", kSystemError);
  transports[0]->exchange({}, {}, nullptr);
}

TEST_F(NcclTransport, AbortEndsLaterExchanges) {
  const auto transports = make_group(2);
  transports[0]->abort("enough");
  const Outcome outcome = exchange(*transports[0]);
  EXPECT_EQ(outcome.error, ErrorCode::kAborted);
  EXPECT_NE(outcome.words.find("enough"), std::string::npos);
}

TEST_F(NcclTransport, ACommunicatorThatCannotTellItsSizeIsRefused) {
  void* communicator = nullptr;
  mock_->make_group(1, &communicator);
  communicators_.push_back(communicator);
  mock_->fail("ncclCommCount", kSystemError);
  EXPECT_EQ(outcome_of([&] { make_nccl_transport(communicator); }).error, ErrorCode::kSystem);
  EXPECT_EQ(outcome_of([] { make_nccl_transport(nullptr); }).error, ErrorCode::kInvalidArgument);
}

Outcome load_from(const char* path) {
  setenv("AGOQ_NCCL_PATH", path, 1);
  int anything = 0;
  return outcome_of([&] { make_nccl_transport(&anything); });
}

TEST(NcclLibrary, AMissingLibraryIsSaidWithTheVariable) {
  const Outcome outcome = load_from("/nowhere/libnccl.so.2");
  EXPECT_EQ(outcome.error, ErrorCode::kUnsupported);
  EXPECT_NE(outcome.words.find("/nowhere/libnccl.so.2"), std::string::npos) << outcome.words;
  EXPECT_NE(outcome.words.find("AGOQ_NCCL_PATH"), std::string::npos) << outcome.words;
}

TEST(NcclLibrary, AMissingFunctionIsNamed) {
  const Outcome outcome = load_from(NCCL_MOCK_WITHOUT_RECV);
  EXPECT_EQ(outcome.error, ErrorCode::kUnsupported);
  EXPECT_NE(outcome.words.find("has no ncclRecv"), std::string::npos) << outcome.words;
}

TEST(NcclLibrary, AnOldVersionIsNamed) {
  const Outcome outcome = load_from(NCCL_MOCK_OLD);
  EXPECT_EQ(outcome.error, ErrorCode::kUnsupported);
  EXPECT_NE(outcome.words.find("21212"), std::string::npos) << outcome.words;
}

// In a process of its own, since what is loaded stays.
TEST(NcclLibraryDeathTest, TheCopyThatTheProcessHasComesFirst) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        void* loaded = dlopen(NCCL_MOCK_LOADED, RTLD_NOW);
        using Find = const NcclMock* (*)();
        const NcclMock* mock = reinterpret_cast<Find>(dlsym(loaded, "agoq_nccl_mock"))();
        void* communicator = nullptr;
        mock->make_group(1, &communicator);
        setenv("AGOQ_NCCL_PATH", "/nowhere/libnccl.so.2", 1);
        std::_Exit(make_nccl_transport(communicator)->size() == 1 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace agoq::testing
