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
std::vector<Bytes> expected_of(const CollectiveCall& call, unsigned seed) {
  const std::vector<CollectiveCall> calls(seed + 1, call);
  return host_results(calls, kSize, quantize_everything()).back();
}

void expect_replays(const CollectiveCall& call, unsigned schedule) {
  FakeDevice device(schedule);
  FakeWorld world(device, kSize, quantize_everything(), kShortSegment);
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
    const std::vector<Bytes> expected = expected_of(call, seed);
    for (int r = 0; r < kSize; ++r) {
      EXPECT_TRUE(buffers[static_cast<std::size_t>(r)]->result() ==
                  expected[static_cast<std::size_t>(r)])
          << call.name() << ", rank " << r << ", seed " << seed << ", schedule " << schedule;
    }
  }
}

TEST(DeviceGraph, AReplayReadsItsInputsAnew) {
  for (const CollectiveCall& call : mixed_calls(kSize)) {
    for (unsigned schedule = 0; schedule < 6; ++schedule) expect_replays(call, schedule);
  }
}

TEST(DeviceGraph, StochasticRoundingIsRefusedAndTheGroupLivesOn) {
  Options options = quantize_everything();
  options.stochastic_rounding = true;
  const CollectiveCall call{.counts = {1000}};
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
