// Every wait is needed: without any one of them some order of streams gives wrong results. So the
// simulated device notices a missing wait, and none is superfluous.
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
  CallResults results;
  int waits = 0;  // Of rank 0.
};

Run run_without(int forgotten, const CollectiveCall& call, int size, unsigned seed) {
  FakeDevice device(seed);
  ForgetfulRuntime runtime(device, forgotten);
  FakeWorld world(device, runtime, make_device_inproc_group(size, device), quantize_everything(),
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
  const CallResults expected = host_results({call}, kSize, quantize_everything());
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

TEST(DeviceOrder, EveryWaitOfAReduceScatterOfRowsIsNeeded) {
  expect_every_wait_needed(
      {.operation = Operation::kReduceScatter,
       .counts = {16, 16},
       .rows = {.width = 100, .residual = true, .norm = true, .normed = true, .encoded = true}});
}

TEST(DeviceOrder, EveryWaitOfAnAllGatherOfEncodedRowsIsNeeded) {
  expect_every_wait_needed({.operation = Operation::kAllGather,
                            .counts = {16, 16},
                            .rows = {.width = 100, .sends_encoded = true}});
}

// What each of three ranks received in one exchange: the sent memory is written just before and
// changed just after it, in the order of the streams.
std::vector<Bytes> exchange_without(int forgotten, unsigned seed, int* waits) {
  constexpr int kSize = 3;
  constexpr std::size_t kBytes = 8;
  FakeDevice device(seed);
  ForgetfulRuntime runtime(device, forgotten);
  auto transports = make_device_inproc_group(kSize, runtime);
  std::vector<Bytes> sent(kSize, Bytes(kBytes));
  std::vector<Bytes> values;
  std::vector<Bytes> received(kSize, Bytes(kSize * kBytes));
  std::vector<void*> streams;
  for (int r = 0; r < kSize; ++r) {
    values.emplace_back(kBytes, static_cast<std::byte>(r + 1));
    streams.push_back(device.create_stream());
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < kSize; ++r) {
    threads.emplace_back([&, r] {
      const auto at = static_cast<std::size_t>(r);
      is_forgetful = r == 0;
      waits_of_this_thread = 0;
      std::vector<DeviceSend> sends;
      std::vector<DeviceReceive> receives;
      for (int peer = 0; peer < kSize; ++peer) {
        if (peer == r) continue;
        sends.push_back({peer, sent[at].data(), kBytes});
        receives.push_back(
            {peer, received[at].data() + static_cast<std::size_t>(peer) * kBytes, kBytes});
      }
      device.copy(sent[at].data(), values[at].data(), kBytes, streams[at]);
      transports[at]->exchange(sends, receives, streams[at]);
      device.poison(sent[at].data(), kBytes, streams[at]);
      if (is_forgetful) *waits = waits_of_this_thread;
    });
  }
  for (std::thread& thread : threads) thread.join();
  device.finish();
  return received;
}

TEST(DeviceOrder, EveryWaitOfAnInprocExchangeIsNeeded) {
  constexpr unsigned kSeeds = 400;
  int waits = 0;
  const std::vector<Bytes> expected = exchange_without(-1, 0, &waits);
  ASSERT_EQ(expected[0][8], std::byte{2});
  ASSERT_EQ(waits, 4);
  for (int forgotten = 0; forgotten < 4; ++forgotten) {
    unsigned seed = 0;
    while (seed < kSeeds && exchange_without(forgotten, seed, &waits) == expected) ++seed;
    EXPECT_LT(seed, kSeeds) << "nothing went wrong without wait " << forgotten;
  }
}

}  // namespace
}  // namespace agoq::testing
