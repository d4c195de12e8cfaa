// What a DeviceCommunicator serves, refuses and says.
#include <gtest/gtest.h>

#include "fake_world.h"

namespace agoq::testing {
namespace {

void expect_error(const Outcome& outcome, ErrorCode code, const std::string& words) {
  EXPECT_EQ(outcome.error, code) << outcome.words;
  EXPECT_NE(outcome.words.find(words), std::string::npos) << outcome.words;
}

TEST(DeviceCommunicator, ServesWhatWouldBeQuantizedAndWhatMovesBytes) {
  FakeDevice device(0);
  Options options;
  options.min_numel = 1000;
  FakeWorld world(device, 2, options, 0);
  DeviceCommunicator& two = *world.rank(0).communicator;
  using enum Operation;
  EXPECT_TRUE(two.serves(kAllReduce, DataType::kFloat32, ReduceOp::kSum, 1000));
  EXPECT_TRUE(two.serves(kReduceScatter, DataType::kBfloat16, ReduceOp::kAvg, 1000));
  EXPECT_TRUE(two.serves(kAllGather, DataType::kInt64, ReduceOp::kNone, 3));
  EXPECT_FALSE(two.serves(kAllReduce, DataType::kFloat32, ReduceOp::kSum, 999));
  EXPECT_FALSE(two.serves(kAllReduce, DataType::kFloat32, ReduceOp::kMax, 1000));
  EXPECT_FALSE(two.serves(kAllReduce, DataType::kInt32, ReduceOp::kSum, 1000));
  EXPECT_FALSE(two.serves(kBroadcast, DataType::kFloat32, ReduceOp::kNone, 1000));
  FakeWorld alone(device, 1, options, 0);
  DeviceCommunicator& one = *alone.rank(0).communicator;
  EXPECT_TRUE(one.serves(kAllReduce, DataType::kInt32, ReduceOp::kMax, 5));
  EXPECT_FALSE(one.serves(kAllReduce, DataType::kFloat32, ReduceOp::kPremulSum, 5));
}

TEST(DeviceCommunicator, RefusesWhatItDoesNotServeAndLivesOn) {
  FakeDevice device(0);
  FakeWorld world(device, 2, Options(), 0);
  DeviceCommunicator& communicator = *world.rank(0).communicator;
  std::vector<float> values(100);
  const auto reduce = [&](DataType type, const DeviceCall& call, std::int64_t count) {
    return outcome_of([&] {
      communicator.all_reduce(values.data(), values.data(), count, type, ReduceOp::kSum, call);
    });
  };
  expect_error(reduce(DataType::kFloat32, {}, 100), ErrorCode::kUnsupported, "(small)");
  expect_error(reduce(DataType::kInt32, {}, 100), ErrorCode::kUnsupported, "(data type)");
  expect_error(reduce(DataType::kFloat32, {}, -1), ErrorCode::kInvalidArgument, "count");
  expect_error(reduce(DataType::kFloat32, {}, 1 << 20), ErrorCode::kInvalidArgument, "workspace");
  DeviceCall odd;
  odd.workspace = {reinterpret_cast<std::byte*>(values.data()) + 1, std::size_t{1} << 30};
  expect_error(reduce(DataType::kFloat32, odd, 1 << 20), ErrorCode::kInvalidArgument, "aligned");
  EXPECT_EQ(communicator.error(), "");
}

TEST(DeviceCommunicator, TheWorkspaceIsAFewSegmentsHoweverLongTheCall) {
  FakeDevice device(0);
  FakeWorld world(device, 4, quantize_everything(), 1024);
  const DeviceCommunicator& communicator = *world.rank(0).communicator;
  const auto bytes = [&](std::int64_t count) {
    return communicator.all_reduce_workspace(count, DataType::kFloat32, ReduceOp::kSum);
  };
  EXPECT_EQ(bytes(1 << 20), bytes(1 << 28));
  EXPECT_LT(bytes(1 << 28), 2u * 10u * 1300u);
  EXPECT_LT(bytes(1024), bytes(1 << 20));
  EXPECT_EQ(bytes(0), 0u);
  EXPECT_EQ(communicator.all_reduce_workspace(1 << 20, DataType::kInt32, ReduceOp::kSum), 0u);
}

TEST(DeviceCommunicator, ConstructionNamesWhatIsWrong) {
  FakeDevice device(0);
  const auto construct = [&](int size, const BlockFormat& format, const Options& options,
                             std::int64_t segment) {
    return outcome_of([&] {
      auto transports = make_device_inproc_group(size, device);
      DeviceCommunicator(std::move(transports[0]), std::make_unique<FakeCodec>(device, format),
                         device, options, segment);
    });
  };
  Options options;
  BlockFormat other;
  other.block = 64;
  expect_error(construct(2, other, options, 0), ErrorCode::kInvalidArgument, "int8/64/bf16");
  expect_error(construct(2, {}, options, -1), ErrorCode::kInvalidArgument, "segment_numel");
  expect_error(construct(257, {}, options, 0), ErrorCode::kUnsupported, "256");
  EXPECT_FALSE(construct(256, {}, options, 0).error);
  expect_error(outcome_of([&] {
                 DeviceCommunicator(nullptr, std::make_unique<FakeCodec>(device, other), device,
                                    options);
               }),
               ErrorCode::kInvalidArgument, "transport is null");
}

TEST(DeviceCommunicator, RanksWhoseCallsDifferFailWithBothCounts) {
  FakeDevice device(0);
  FakeWorld world(device, 2, quantize_everything(), 0);
  const std::vector<Outcome> outcomes = world.on_all([&](int r) {
    const CollectiveCall call{.counts = {r == 0 ? 2048 : 4096}};
    CallBuffers buffers(call, r, 0);
    try {
      world.rank(r).issue(device, buffers, 1.0f);
    } catch (...) {
      device.finish();  // Before the buffers go.
      throw;
    }
  });
  int mismatches = 0;
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.error);
    mismatches += outcome.words.find("the ranks' calls differ") != std::string::npos;
  }
  EXPECT_EQ(mismatches, 2);
  EXPECT_NE(world.rank(0).communicator->error(), "");
  const Outcome later = outcome_of([&] {
    CallBuffers buffers({.counts = {2048}}, 0, 0);
    world.rank(0).issue(device, buffers, 1.0f);
  });
  expect_error(later, ErrorCode::kAborted, "the first failure was");
}

TEST(DeviceCommunicator, AbortFreesARankThatWaitsForOthers) {
  FakeDevice device(0);
  FakeWorld world(device, 2, quantize_everything(), 0);
  const std::vector<Outcome> outcomes = world.on_all([&](int r) {
    if (r == 1) {
      world.rank(0).communicator->abort("enough");
      return;
    }
    CallBuffers buffers({.counts = {2048}}, r, 0);
    try {
      world.rank(r).issue(device, buffers, 1.0f);
    } catch (...) {
      device.finish();
      throw;
    }
  });
  expect_error(outcomes[0], ErrorCode::kAborted, "enough");
  EXPECT_NE(world.rank(0).communicator->error().find("enough"), std::string::npos);
}

TEST(DeviceCommunicator, ARankThatLeavesIsNamed) {
  FakeDevice device(0);
  FakeWorld world(device, 2, quantize_everything(), 0);
  world.rank(1).communicator.reset();
  EXPECT_EQ(world.rank(0).communicator->error(), "");
  const Outcome outcome = outcome_of([&] {
    CallBuffers buffers({.counts = {2048}}, 0, 0);
    try {
      world.rank(0).issue(device, buffers, 1.0f);
    } catch (...) {
      device.finish();
      throw;
    }
  });
  expect_error(outcome, ErrorCode::kPeerFailed, "rank 1 has left");
  EXPECT_EQ(outcome.peer, 1);
}

TEST(DeviceCommunicator, DescribesItself) {
  FakeDevice device(0);
  FakeWorld world(device, 2, Options(), 4096);
  const std::string text = world.rank(1).communicator->describe();
  EXPECT_NE(text.find("rank 1 of 2, device transport inproc"), std::string::npos) << text;
  EXPECT_NE(text.find("segments of 4096 elements"), std::string::npos) << text;
}

TEST(CudaRuntime, SaysWhyThereIsNone) {
  const Outcome outcome = outcome_of([] { cuda_runtime(); });
  if (!outcome.error) GTEST_SKIP() << "this machine has a CUDA device";
  EXPECT_EQ(outcome.error, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace agoq::testing
