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
  const auto with_rows = [&](int size, const BlockFormat& format, int max_pieces) {
    return outcome_of([&] {
      auto transports = make_device_inproc_group(size, device);
      DeviceCommunicator(std::move(transports[0]),
                         std::make_unique<FakeCodec>(device, BlockFormat()), device, options, 0,
                         std::make_unique<FakeRowCodec>(device, format, max_pieces));
    });
  };
  expect_error(with_rows(2, other, 256), ErrorCode::kInvalidArgument, "codec of rows");
  expect_error(with_rows(9, {}, 8), ErrorCode::kUnsupported, "sums up to 8 pieces");
  expect_error(outcome_of([&] {
                 DeviceCommunicator(nullptr, std::make_unique<FakeCodec>(device, other), device,
                                    options);
               }),
               ErrorCode::kInvalidArgument, "transport is null");
}

TEST(DeviceCommunicator, ACallMaySayItselfWhetherItIsQuantized) {
  FakeDevice device(0);
  Options options = quantize_everything();
  options.quantize_reduce_scatter = false;
  options.quantize_all_gather = false;
  FakeWorld world(device, 2, options, 0);
  const DeviceCommunicator& communicator = *world.rank(0).communicator;
  using enum Operation;
  const auto serves = [&](std::optional<bool> quantize) {
    return communicator.serves(kReduceScatter, DataType::kFloat32, ReduceOp::kSum, 1000, quantize);
  };
  EXPECT_FALSE(serves({}));
  EXPECT_TRUE(serves(true));
  EXPECT_FALSE(communicator.serves(kAllReduce, DataType::kFloat32, ReduceOp::kSum, 1000, false));
  const std::vector<std::int64_t> rows = {10, 10};
  const auto gather = [&](std::optional<bool> quantize) {
    return communicator.all_gather_rows_workspace(rows, 100, DataType::kFloat32, quantize);
  };
  EXPECT_EQ(gather({}), 0u);
  EXPECT_GT(gather(true), 0u);
  EXPECT_GT(communicator.all_gather_encoded_rows_workspace(rows, 100), 0u);
}

TEST(DeviceCommunicator, RowsAreCheckedBeforeAnythingIsOnAStream) {
  FakeDevice device(0);
  FakeWorld world(device, 2, quantize_everything(), 0);
  DeviceCommunicator& communicator = *world.rank(0).communicator;
  std::vector<float> values(600);
  std::vector<std::byte> bytes(2000);
  const std::vector<std::int64_t> rows = {2, 1};
  const void* in[] = {values.data(), values.data()};
  void* out[] = {values.data(), values.data()};
  const auto reduce = [&](std::int64_t width, const RowEpilogue& epilogue,
                          std::optional<bool> quantize = {}) {
    return outcome_of([&] {
      DeviceCall call;
      call.quantize = quantize;
      communicator.reduce_scatter_rows(in, rows, width, values.data(), DataType::kFloat32,
                                       ReduceOp::kSum, epilogue, call);
    });
  };
  constexpr auto kInvalid = ErrorCode::kInvalidArgument;
  expect_error(reduce(0, {}), kInvalid, "a row has 0 elements");
  expect_error(reduce(100, {}), kInvalid, "workspace");
  expect_error(reduce(100, {}, false), ErrorCode::kUnsupported, "(not selected)");
  RowEpilogue odd;
  odd.encoded = {bytes.data() + 1, 2, 0};
  expect_error(reduce(100, odd), kInvalid, "aligned to 4");
  RowEpilogue outside;
  outside.encoded = {bytes.data(), 2, 1};
  expect_error(reduce(100, outside), kInvalid, "do not lie within the 2");
  RowEpilogue aimless;
  aimless.normed = values.data();
  expect_error(reduce(100, aimless), kInvalid, "but no norm");
  expect_error(outcome_of([&] {
                 communicator.all_gather_encoded_rows(bytes.data(), out, rows, 100,
                                                      DataType::kInt32, {});
               }),
               kInvalid, "decode to float32");
  EXPECT_EQ(communicator.error(), "");
}

TEST(DeviceCommunicator, RowsOfOneRankAreFinishedWithoutPeers) {
  constexpr std::int64_t kRows = 5, kWidth = 100;
  const RowShape shape{kRows, kWidth};
  FakeDevice device(3);
  FakeWorld alone(device, 1, quantize_everything(), 0);
  DeviceCommunicator& communicator = *alone.rank(0).communicator;
  const Bytes in = make_input(Family::kNormal, DataType::kBfloat16, kRows * kWidth, 1);
  const Bytes residual = make_input(Family::kNormal, DataType::kBfloat16, kRows * kWidth, 2);
  Bytes sums(in.size()), expected(in.size()), normed(in.size()), expected_normed(in.size());
  RowEpilogue epilogue;
  epilogue.residual = residual.data();
  epilogue.norm = RmsNorm{};
  epilogue.normed = normed.data();
  const void* chunks[] = {in.data()};
  const std::vector<std::int64_t> rows = {kRows};
  communicator.reduce_scatter_rows(chunks, rows, kWidth, sums.data(), DataType::kBfloat16,
                                   ReduceOp::kSum, epilogue, {});
  device.finish();
  const Bytes reduced = sums, reduced_normed = normed;
  communicator.finish_rows(in.data(), DataType::kBfloat16, shape, sums.data(), epilogue, nullptr);
  device.finish();
  epilogue.normed = expected_normed.data();
  RowCodec(Codec(BlockFormat()))
      .apply(in.data(), DataType::kBfloat16, shape, expected.data(), epilogue);
  EXPECT_TRUE(reduced == expected && sums == expected);
  EXPECT_TRUE(reduced_normed == expected_normed && normed == expected_normed);
}

TEST(DeviceCommunicator, WithoutACodecOfRowsItSaysSo) {
  FakeDevice device(0);
  auto transports = make_device_inproc_group(2, device);
  DeviceCommunicator communicator(std::move(transports[0]),
                                  std::make_unique<FakeCodec>(device, BlockFormat()), device,
                                  quantize_everything());
  std::vector<float> values(256);
  void* out[] = {values.data(), values.data()};
  const std::vector<std::int64_t> rows = {1, 1};
  expect_error(outcome_of([&] {
                 communicator.all_gather_rows(values.data(), out, rows, 128, DataType::kFloat32,
                                              {});
               }),
               ErrorCode::kUnsupported, "no codec of rows");
  EXPECT_EQ(communicator.error(), "");
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
