// The device collectives give what Communicator gives, under every order that a device may choose.
#include <gtest/gtest.h>

#include "agoqcomm/wire_layout.h"
#include "fake_world.h"

namespace agoq::testing {
namespace {

class DeviceCollectives : public ::testing::TestWithParam<int> {};

TEST_P(DeviceCollectives, EqualTheHostsUnderManySchedules) {
  const int size = GetParam();
  const std::vector<CollectiveCall> calls = mixed_calls(size);
  const Options options = quantize_everything();
  const CallResults expected = host_results(calls, size, options);
  for (unsigned seed = 0; seed < 36; ++seed) {
    FakeDevice device(seed);
    FakeWorld world(device, size, options, kShortSegment);
    expect_equal(world.run(calls), expected, calls, "seed " + std::to_string(seed));
  }
}

TEST_P(DeviceCollectives, RoundStochasticallyByTheSameNumbers) {
  const int size = GetParam();
  const std::vector<CollectiveCall> calls = mixed_calls(size);
  Options options = quantize_everything();
  options.stochastic_rounding = true;
  options.seed = 7;
  const CallResults expected = host_results(calls, size, options);
  for (unsigned seed = 0; seed < 6; ++seed) {
    FakeDevice device(seed);
    FakeWorld world(device, size, options, kShortSegment);
    expect_equal(world.run(calls), expected, calls, "seed " + std::to_string(seed));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, DeviceCollectives, ::testing::Values(1, 2, 3, 4, 5));

TEST(DeviceCollectives, NoResultDependsOnTheSegment) {
  const std::vector<CollectiveCall> calls = mixed_calls(3);
  const Options options = quantize_everything();
  const CallResults expected = host_results(calls, 3, options);
  for (const std::int64_t segment : {0, 1, 256, 640, 100000}) {
    FakeDevice device(1);
    FakeWorld world(device, 3, options, segment);
    expect_equal(world.run(calls), expected, calls, "segment " + std::to_string(segment));
  }
}

TEST(DeviceCollectives, GathersOfRowsThatNobodyHas) {
  std::vector<CollectiveCall> calls = row_calls(3, 0);
  std::erase_if(calls,
                [](const CollectiveCall& call) { return call.operation != Operation::kAllGather; });
  for (CollectiveCall& call : calls) call.counts = {0, 0, 0};
  const Options options = quantize_everything();
  FakeDevice device(0);
  FakeWorld world(device, 3, options, kShortSegment);
  expect_equal(world.run(calls), host_results(calls, 3, options), calls, "no rows");
}

// They have more scales than a flat buffer of as many elements, and an odd number of bytes.
TEST(DeviceCollectives, RowsShorterThanABlockHaveRoomAndNothingBetweenThem) {
  constexpr std::int64_t kWidth = 3, kRows = 401;
  const std::vector<std::int64_t> counts = {400, 0, kRows};
  using enum Operation;
  const std::vector<CollectiveCall> calls = {
      {.operation = kReduceScatter, .counts = counts, .rows = {.width = kWidth}},
      {.operation = kAllGather, .counts = counts, .rows = {.width = kWidth, .sends_encoded = true}},
  };
  const Options options = quantize_everything();
  const CallResults expected = host_results(calls, 3, options);
  const std::int64_t bytes = RowLayout(options.format, {kRows, kWidth}).total_bytes();
  for (const std::int64_t segment : {std::int64_t{0}, kShortSegment}) {
    FakeDevice device(1);
    FakeWorld world(device, 3, options, segment);
    expect_equal(world.run(calls), expected, calls, "segment " + std::to_string(segment));
    EXPECT_EQ(of(world.rank(2).communicator->stats(), kAllGather).wire_bytes, 2 * bytes);
  }
}

TEST(DeviceCollectives, AnExactAllGatherMovesTheValues) {
  std::vector<CollectiveCall> calls = flat_calls(3, 500);
  std::erase_if(calls,
                [](const CollectiveCall& call) { return call.operation != Operation::kAllGather; });
  calls.push_back({.operation = Operation::kAllGather,
                   .type = DataType::kBfloat16,
                   .counts = {0, 5, 1000},
                   .family = Family::kRandomBits});
  Options options;
  options.quantize_all_gather = false;
  const CallResults expected = host_results(calls, 3, options);
  for (unsigned seed = 0; seed < 12; ++seed) {
    FakeDevice device(seed);
    FakeWorld world(device, 3, options, kShortSegment);
    expect_equal(world.run(calls), expected, calls, "seed " + std::to_string(seed));
    const Stats stats = world.rank(2).communicator->stats();
    EXPECT_EQ(of(stats, Operation::kAllGather).exact_calls, std::ssize(calls));
    EXPECT_EQ(of(stats, Operation::kAllGather).quantized_calls, 0);
  }
}

TEST(DeviceCollectives, KernelsMoveLittleMoreThanTheLeast) {
  constexpr std::int64_t kCount = 1 << 20;
  constexpr int kSize = 4;
  const std::vector<CollectiveCall> calls = {{.counts = {kCount}}};
  const Options options = quantize_everything();
  FakeDevice device(0);
  FakeWorld world(device, kSize, options, 0);
  world.run(calls);
  // Input read once, output written once; each encoded byte written once and read once.
  constexpr std::int64_t kChunk = kCount / kSize;
  const std::int64_t chunk_bytes = WireLayout(options.format, kChunk).total_bytes();
  constexpr int kOthers = kSize - 1;
  const std::int64_t least = 2 * kCount * 4 + kOthers * chunk_bytes  // pieces written
                             + kOthers * chunk_bytes + chunk_bytes   // read, sum written
                             + kOthers * chunk_bytes;                // results read
  EXPECT_GE(world.rank(0).codec->bytes_moved(), least);
  EXPECT_LE(static_cast<double>(world.rank(0).codec->bytes_moved()),
            1.1 * static_cast<double>(least));
}

TEST(DeviceCollectives, CountWhatTheHostCounts) {
  const std::vector<CollectiveCall> calls = mixed_calls(3);
  const Options options = quantize_everything();
  Stats expected{};
  expect_success(run_ranks(3, options, [&](Communicator& communicator) {
    for (std::size_t c = 0; c < calls.size(); ++c) {
      CallBuffers buffers(calls[c], communicator.rank(), static_cast<unsigned>(c));
      buffers.issue(communicator, CallOptions{});
    }
    if (communicator.rank() == 0) expected = communicator.stats();
  }));
  FakeDevice device(0);
  FakeWorld world(device, 3, options, 0);
  world.run(calls);
  const Stats stats = world.rank(0).communicator->stats();
  for (const Operation operation :
       {Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather}) {
    EXPECT_EQ(of(stats, operation).quantized_calls, of(expected, operation).quantized_calls);
    EXPECT_EQ(of(stats, operation).elements, of(expected, operation).elements);
    EXPECT_EQ(of(stats, operation).exact_bytes, of(expected, operation).exact_bytes);
  }
}

TEST(DeviceCollectives, ASteadyStateMakesNothing) {
  const std::vector<CollectiveCall> calls = mixed_calls(3);
  FakeDevice device(1);
  FakeWorld world(device, 3, quantize_everything(), kShortSegment);
  world.run(calls);
  const int made = device.things_made();
  world.run(calls);
  EXPECT_EQ(device.things_made(), made);
}

}  // namespace
}  // namespace agoq::testing
