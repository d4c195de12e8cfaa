// Every wait of the device collectives is needed: without any one of them some order of streams
// gives wrong results. So the simulated device notices a missing wait, and none is superfluous.
#include <gtest/gtest.h>

#include "fake_world.h"

namespace agoq::testing {
namespace {

// The threads of other ranks leave it alone.
thread_local int waits_of_this_thread = 0;
thread_local bool is_forgetful = false;

/// Forgets one wait of the thread that is_forgetful.
class ForgetfulRuntime final : public DeviceRuntime {
 public:
  ForgetfulRuntime(FakeDevice& device, int forgotten) : device_(device), forgotten_(forgotten) {}

  void wait(void* event, void* stream) override {
    if (is_forgetful && waits_of_this_thread++ == forgotten_) return;
    device_.wait(event, stream);
  }

  void* create_stream() override { return device_.create_stream(); }
  void destroy_stream(void* stream) noexcept override { device_.destroy_stream(stream); }
  bool is_capturing(void* stream) override { return device_.is_capturing(stream); }
  void* create_event() override { return device_.create_event(); }
  void destroy_event(void* event) noexcept override { device_.destroy_event(event); }
  void record(void* event, void* stream) override { device_.record(event, stream); }
  void copy(void* to, const void* from, std::size_t bytes, void* stream) override {
    device_.copy(to, from, bytes, stream);
  }
  void* allocate_pinned(std::size_t bytes) override { return device_.allocate_pinned(bytes); }
  void free_pinned(void* memory) noexcept override { device_.free_pinned(memory); }
  void write_value(std::uint32_t* word, std::uint32_t value, void* stream) override {
    device_.write_value(word, value, stream);
  }
  void wait_value(std::uint32_t* word, std::uint32_t value, void* stream) override {
    device_.wait_value(word, value, stream);
  }

 private:
  FakeDevice& device_;
  int forgotten_;
};

struct Run {
  Results results;
  int waits = 0;  // Of rank 0.
};

Run run_without(int forgotten, const CollectiveCall& call, int size, unsigned seed) {
  FakeDevice device(seed);
  ForgetfulRuntime runtime(device, forgotten);
  FakeWorld world(device, runtime, make_device_inproc_group(size, runtime), quantize_all(),
                  kShortSegment);
  std::vector<std::unique_ptr<CallBuffers>> buffers;
  for (int r = 0; r < size; ++r) buffers.push_back(std::make_unique<CallBuffers>(call, r, 0));
  Run run;
  expect_success(world.on_all([&](int r) {
    is_forgetful = r == 0;
    waits_of_this_thread = 0;
    world.rank(r).issue(device, *buffers[static_cast<std::size_t>(r)], call.factor);
    if (is_forgetful) run.waits = waits_of_this_thread;
  }));
  device.finish();
  run.results.emplace_back();
  for (const auto& of_rank : buffers) run.results[0].push_back(of_rank->result());
  return run;
}

void expect_every_wait_needed(const CollectiveCall& call) {
  constexpr int kSize = 2;
  constexpr unsigned kSeeds = 400;
  const Results expected = host_results({call}, kSize, quantize_all());
  const Run whole = run_without(-1, call, kSize, 0);
  ASSERT_TRUE(whole.results == expected);
  ASSERT_GT(whole.waits, 0);
  for (int forgotten = 0; forgotten < whole.waits; ++forgotten) {
    unsigned seed = 0;
    while (seed < kSeeds && run_without(forgotten, call, kSize, seed).results == expected) ++seed;
    EXPECT_LT(seed, kSeeds) << call.name() << ": nothing went wrong without wait " << forgotten
                            << " of " << whole.waits;
  }
}

TEST(DeviceOrder, EveryWaitOfAnAllReduceIsNeeded) {
  expect_every_wait_needed({.operation = Operation::kAllReduce, .counts = {2 * 4 * kShortSegment}});
}

TEST(DeviceOrder, EveryWaitOfAReduceScatterIsNeeded) {
  expect_every_wait_needed(
      {.operation = Operation::kReduceScatter, .counts = {4 * kShortSegment, 4 * kShortSegment}});
}

TEST(DeviceOrder, EveryWaitOfAnAllGatherIsNeeded) {
  expect_every_wait_needed(
      {.operation = Operation::kAllGather, .counts = {4 * kShortSegment, 4 * kShortSegment}});
}

}  // namespace
}  // namespace agoq::testing
