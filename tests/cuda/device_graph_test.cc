// A device collective can be captured in a graph after one call, and replayed with other inputs.
#include <gtest/gtest.h>

#include "agoqcomm/device_staging.h"
#include "fake_world.h"

namespace agoq::testing {
namespace {

constexpr int kSize = 3;

// All ranks' work of one call in one graph: their streams fork from rank 0's and join it.
class Capture {
 public:
  Capture(FakeDevice& device, FakeWorld& world) : device_(device), world_(world) {
    for (int r = 0; r < world.size(); ++r) ends_.push_back(device.create_event());
    fork_ = device.create_event();
  }
  ~Capture() {
    for (void* end : ends_) device_.destroy_event(end);
    device_.destroy_event(fork_);
  }

  template <typename Body>
  std::shared_ptr<FakeDevice::Graph> of(Body body) {
    device_.begin_capture(world_.rank(0).stream);
    device_.record(fork_, world_.rank(0).stream);
    for (int r = 1; r < world_.size(); ++r) device_.wait(fork_, world_.rank(r).stream);
    outcomes_ = world_.on_all(body);
    for (int r = 1; r < world_.size(); ++r) {
      device_.record(ends_[static_cast<std::size_t>(r)], world_.rank(r).stream);
      device_.wait(ends_[static_cast<std::size_t>(r)], world_.rank(0).stream);
    }
    return device_.end_capture(world_.rank(0).stream);
  }

  const std::vector<Outcome>& outcomes() const { return outcomes_; }

 private:
  FakeDevice& device_;
  FakeWorld& world_;
  std::vector<void*> ends_;
  void* fork_;
  std::vector<Outcome> outcomes_;
};

// The host's results where every rank's input is that of `seed`.
std::vector<Bytes> expected_of(const CollectiveCall& call, unsigned seed, const Options& options) {
  const std::vector<CollectiveCall> calls(seed + 1, call);
  return host_results(calls, kSize, options).back();
}

void expect_replays(const CollectiveCall& call, unsigned schedule,
                    const Options& options = quantize_everything()) {
  FakeDevice device(schedule);
  FakeWorld world(device, kSize, options, kShortSegment);
  std::vector<std::unique_ptr<CallBuffers>> buffers;
  for (int r = 0; r < kSize; ++r) buffers.push_back(std::make_unique<CallBuffers>(call, r, 0));
  Capture capture(device, world);
  const auto issue = [&](int r) {
    world.rank(r).issue(device, *buffers[static_cast<std::size_t>(r)], call.factor);
  };
  expect_success(world.on_all(issue));  // The warm-up.
  device.finish();
  const int made = device.things_made();
  const auto graph = capture.of(issue);
  expect_success(capture.outcomes());
  EXPECT_EQ(device.things_made(), made);
  for (const unsigned seed : {1u, 2u}) {
    for (int r = 0; r < kSize; ++r) buffers[static_cast<std::size_t>(r)]->refill(seed);
    device.replay(graph, world.rank(0).stream);
    device.finish();
    const std::vector<Bytes> expected = expected_of(call, seed, options);
    for (int r = 0; r < kSize; ++r) {
      EXPECT_TRUE(buffers[static_cast<std::size_t>(r)]->result() ==
                  expected[static_cast<std::size_t>(r)])
          << call.name() << ", rank " << r << ", seed " << seed << ", schedule " << schedule;
    }
  }
}

TEST(DeviceGraph, AReplayReadsItsInputsAnew) {
  for (CollectiveCall call : mixed_calls(kSize)) {
    call.rows.draws = false;
    for (unsigned schedule = 0; schedule < 6; ++schedule) expect_replays(call, schedule);
  }
}

void expect_draws_are_refused(const CollectiveCall& call, const Options& options) {
  FakeDevice device(0);
  FakeWorld world(device, kSize, options, kShortSegment);
  Capture capture(device, world);
  std::vector<std::unique_ptr<CallBuffers>> buffers;
  for (int r = 0; r < kSize; ++r) buffers.push_back(std::make_unique<CallBuffers>(call, r, 0));
  const auto issue = [&](int r) {
    world.rank(r).issue(device, *buffers[static_cast<std::size_t>(r)], 1.0f);
  };
  capture.of(issue);
  for (const Outcome& outcome : capture.outcomes()) {
    EXPECT_EQ(outcome.error, ErrorCode::kUnsupported);
    EXPECT_NE(outcome.words.find("stochastic"), std::string::npos) << outcome.words;
  }
  expect_success(world.on_all(issue));
  device.finish();
}

TEST(DeviceGraph, StochasticRoundingIsRefusedAndTheGroupLivesOn) {
  Options options = quantize_everything();
  options.stochastic_rounding = true;
  expect_draws_are_refused({.counts = {1000}}, options);
}

TEST(DeviceGraph, SoIsThatOfAnEpilogueOnly) {
  const CollectiveCall call{.operation = Operation::kReduceScatter,
                            .counts = {5, 5, 5},
                            .rows = {.width = 100, .encoded = true}};
  expect_draws_are_refused(call, quantize_everything());
}

TEST(DeviceGraph, SoAreRowsThatAreFinishedAlone) {
  constexpr RowShape kShape{2, 100};
  FakeDevice device(0);
  FakeWorld world(device, 1, Options(), 0);
  const DeviceCommunicator& communicator = *world.rank(0).communicator;
  const std::vector<float> values(kShape.rows * kShape.width);
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(RowLayout(BlockFormat(), kShape).total_bytes()));
  void* stream = world.rank(0).stream;
  const auto finish = [&](bool stochastic) {
    RowEpilogue epilogue;
    epilogue.encoded = {bytes.data(), kShape.rows, 0};
    epilogue.rounding.stochastic = stochastic;
    return outcome_of([&] {
      communicator.finish_rows(values.data(), DataType::kFloat32, kShape, nullptr, epilogue,
                               stream);
    });
  };
  device.begin_capture(stream);
  EXPECT_EQ(finish(true).error, ErrorCode::kUnsupported);
  EXPECT_FALSE(finish(false).error);
  device.end_capture(stream);
  EXPECT_FALSE(finish(true).error);
  device.finish();
}

TEST(DeviceGraph, BytesThatAreSentAsTheyAreDrawNothing) {
  Options options = quantize_everything();
  options.stochastic_rounding = true;
  const CollectiveCall call{.operation = Operation::kAllGather,
                            .counts = {5, 0, 7},
                            .rows = {.width = 100, .sends_encoded = true}};
  expect_replays(call, 0, options);
}

TEST(DeviceGraph, StagingIsRefusedAndTheGroupLivesOn) {
  const CollectiveCall call{.counts = {1000}};
  FakeDevice device(0);
  std::vector<std::unique_ptr<DeviceTransport>> transports;
  for (std::unique_ptr<Transport>& host : make_inproc_group(kSize)) {
    transports.push_back(make_staging_transport(std::move(host), device, std::chrono::seconds(20)));
  }
  FakeWorld world(device, device, std::move(transports), quantize_everything(), kShortSegment);
  Capture capture(device, world);
  std::vector<std::unique_ptr<CallBuffers>> buffers;
  for (int r = 0; r < kSize; ++r) buffers.push_back(std::make_unique<CallBuffers>(call, r, 0));
  const auto issue = [&](int r) {
    world.rank(r).issue(device, *buffers[static_cast<std::size_t>(r)], 1.0f);
  };
  capture.of(issue);
  for (const Outcome& outcome : capture.outcomes()) {
    EXPECT_EQ(outcome.error, ErrorCode::kUnsupported);
    EXPECT_NE(outcome.words.find("staging over inproc"), std::string::npos) << outcome.words;
  }
  expect_success(world.on_all(issue));
  device.finish();
}

TEST(DeviceGraph, TheSimulationNoticesACaptureThatWasNotJoined) {
  FakeDevice device(0);
  void* origin = device.create_stream();
  void* other = device.create_stream();
  void* event = device.create_event();
  device.begin_capture(origin);
  device.record(event, origin);
  device.wait(event, other);
  device.enqueue(other, [] { return true; });
  EXPECT_THROW(device.create_event(), std::logic_error);
  EXPECT_THROW(device.end_capture(origin), std::logic_error);
  device.destroy_event(event);
}

}  // namespace
}  // namespace agoq::testing
