// Device memory over host transports.
#include "agoqcomm/device_staging.h"

#include <gtest/gtest.h>

#include <atomic>

#include "fake_world.h"

namespace agoq::testing {
namespace {

constexpr std::chrono::seconds kTimeout{20};

std::vector<std::unique_ptr<DeviceTransport>> stage(std::vector<std::unique_ptr<Transport>> hosts,
                                                    DeviceRuntime& runtime,
                                                    std::chrono::milliseconds timeout = kTimeout) {
  std::vector<std::unique_ptr<DeviceTransport>> transports;
  for (std::unique_ptr<Transport>& host : hosts) {
    transports.push_back(make_staging_transport(std::move(host), runtime, timeout));
  }
  return transports;
}

TEST(DeviceStaging, EqualsTheHostsUnderManySchedules) {
  for (const int size : {1, 2, 3, 5}) {
    const std::vector<CollectiveCall> calls = mixed_calls(size);
    const Options options = quantize_everything();
    const CallResults expected = host_results(calls, size, options);
    for (unsigned seed = 0; seed < 6; ++seed) {
      FakeDevice device(seed);
      FakeWorld world(device, device, stage(make_slow_group(size, 1, seed), device), options,
                      kShortSegment);
      expect_equal(world.run(calls), expected, calls, "seed " + std::to_string(seed));
      for (int r = 0; r < size; ++r) EXPECT_EQ(world.rank(r).communicator->error(), "");
    }
  }
}

TEST(DeviceStaging, PinnedMemoryGrowsAndThenStays) {
  std::vector<CollectiveCall> calls = {{.counts = {300}}, {.counts = {3000}}, {.counts = {1000}}};
  const CallResults expected = host_results(calls, 2, quantize_everything());
  FakeDevice device(2);
  FakeWorld world(device, device, stage(make_inproc_group(2), device), quantize_everything(), 4096);
  expect_equal(world.run(calls), expected, calls, "growing");
  const int made = device.things_made();
  expect_equal(world.run(calls), expected, calls, "steady");
  EXPECT_EQ(device.things_made(), made);
}

TEST(DeviceStaging, CallsOnSeveralStreamsShareTheBuffersInOrder) {
  const std::vector<CollectiveCall> calls(6, {.counts = {1500}});
  const CallResults expected = host_results(calls, 2, quantize_everything());
  for (unsigned seed = 0; seed < 12; ++seed) {
    FakeDevice device(seed);
    FakeWorld world(device, device, stage(make_inproc_group(2), device), quantize_everything(),
                    kShortSegment);
    std::vector<std::vector<std::unique_ptr<CallBuffers>>> buffers(2);
    std::vector<std::vector<void*>> streams(2);
    for (int r = 0; r < 2; ++r) {
      for (std::size_t c = 0; c < calls.size(); ++c) {
        buffers[static_cast<std::size_t>(r)].push_back(
            std::make_unique<CallBuffers>(calls[c], r, static_cast<unsigned>(c)));
        streams[static_cast<std::size_t>(r)].push_back(device.create_stream());
      }
    }
    expect_success(world.on_all([&](int r) {
      const auto at = static_cast<std::size_t>(r);
      for (std::size_t c = 0; c < calls.size(); ++c) {
        world.rank(r).stream = streams[at][c];
        world.rank(r).issue(device, *buffers[at][c], 1.0f);
      }
    }));
    device.finish();
    for (std::size_t c = 0; c < calls.size(); ++c) {
      for (std::size_t r = 0; r < 2; ++r) {
        EXPECT_TRUE(buffers[r][c]->result() == expected[c][r]) << "seed " << seed << " call " << c;
      }
    }
  }
}

// A stream that waited for bytes that never come would hang the device.
TEST(DeviceStaging, ALatePeerIsATimeoutAndTheStreamGoesOn) {
  FakeDevice device(0);
  FakeWorld world(device, device,
                  stage(make_inproc_group(2), device, std::chrono::milliseconds(200)),
                  quantize_everything(), 0);
  CallBuffers buffers({.counts = {1000}}, 0, 0);
  world.rank(0).issue(device, buffers, 1.0f);
  std::atomic<bool> has_gone_on = false;
  device.enqueue(world.rank(0).stream, [&] { return has_gone_on = true; });
  device.finish();
  EXPECT_TRUE(has_gone_on);
  const std::string words = world.rank(0).communicator->error();
  EXPECT_NE(words.find("Timed out after 200 ms waiting for bytes of rank 1"), std::string::npos)
      << words;
  const Outcome later = outcome_of([&] { world.rank(0).issue(device, buffers, 1.0f); });
  EXPECT_EQ(later.error, ErrorCode::kAborted);
  device.finish();
}

TEST(DeviceStaging, AbortLetsTheStreamGoOn) {
  FakeDevice device(0);
  FakeWorld world(device, device, stage(make_inproc_group(2), device), quantize_everything(), 0);
  CallBuffers buffers({.counts = {1000}}, 0, 0);
  world.rank(0).issue(device, buffers, 1.0f);
  world.rank(0).communicator->abort("enough");
  device.finish();
  EXPECT_NE(world.rank(0).communicator->error().find("enough"), std::string::npos);
}

TEST(DeviceStaging, RanksAtDifferentExchangesAreNamed) {
  FakeDevice device(0);
  auto transports = stage(make_inproc_group(2), device, std::chrono::milliseconds(300));
  std::vector<std::byte> bytes(64);
  const DeviceSend send{1, bytes.data(), 32};
  const DeviceReceive receive{0, bytes.data() + 32, 32};
  transports[1]->exchange({}, {}, nullptr);  // Rank 1 is one ahead.
  transports[0]->exchange({&send, 1}, {}, nullptr);
  transports[1]->exchange({}, {&receive, 1}, nullptr);
  device.finish();
  const std::string words = transports[1]->error();
  EXPECT_NE(words.find("rank 0 is at exchange 1 of device memory, rank 1 at 2"), std::string::npos)
      << words;
}

TEST(DeviceStaging, ArgumentsAreChecked) {
  FakeDevice device(0);
  EXPECT_EQ(outcome_of([&] { make_staging_transport(nullptr, device, kTimeout); }).error,
            ErrorCode::kInvalidArgument);
  auto transports = stage(make_inproc_group(2), device);
  std::byte byte{};
  for (const DeviceSend& send :
       {DeviceSend{0, &byte, 1}, DeviceSend{2, &byte, 1}, DeviceSend{-1, &byte, 1},
        DeviceSend{1, nullptr, 1}, DeviceSend{1, &byte, 0}}) {
    EXPECT_EQ(outcome_of([&] { transports[0]->exchange({&send, 1}, {}, nullptr); }).error,
              ErrorCode::kInvalidArgument);
  }
  const DeviceReceive twice[] = {{1, &byte, 1}, {1, &byte, 1}};
  EXPECT_EQ(outcome_of([&] { transports[0]->exchange({}, twice, nullptr); }).error,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(transports[0]->error(), "");
  EXPECT_FALSE(transports[0]->can_be_captured());
}

}  // namespace
}  // namespace agoq::testing
