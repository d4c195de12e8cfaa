// Exact all-reduce on both sides of the crossover: other bytes on the wire, the same result.
#include "collective/one_shot_all_reduce.h"

#include <gtest/gtest.h>

#include <vector>

#include "collective/exact_reduce.h"
#include "contract_oracle.h"
#include "group_testing.h"

namespace agoq::testing {
namespace {

/// A transport under another name: the crossover is the transport's.
class Renamed final : public Transport {
 public:
  Renamed(std::unique_ptr<Transport> inner, std::string_view name)
      : inner_(std::move(inner)), name_(name) {}
  std::string_view name() const override { return name_; }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void begin_call(const Label& label) override { inner_->begin_call(label); }
  SendBuffer acquire(std::size_t bytes) override { return inner_->acquire(bytes); }
  void post_send(SendBuffer buffer, std::span<const int> peers, Tag tag) override {
    inner_->post_send(buffer, peers, tag);
  }
  Ticket post_send(const void* data, std::size_t bytes, std::span<const int> peers,
                   Tag tag) override {
    return inner_->post_send(data, bytes, peers, tag);
  }
  Ticket post_receive(int peer, Tag tag, std::size_t bytes) override {
    return inner_->post_receive(peer, tag, bytes);
  }
  Ticket post_receive(int peer, Tag tag, void* into, std::size_t bytes) override {
    return inner_->post_receive(peer, tag, into, bytes);
  }
  bool test(Ticket ticket) override { return inner_->test(ticket); }
  const std::byte* received(Ticket ticket) override { return inner_->received(ticket); }
  void release(Ticket ticket) override { inner_->release(ticket); }
  bool sends_complete() override { return inner_->sends_complete(); }
  void wait(Clock::time_point deadline) override { inner_->wait(deadline); }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }
  int send_buffer_limit(std::size_t bytes) const override {
    return inner_->send_buffer_limit(bytes);
  }

 private:
  std::unique_ptr<Transport> inner_;
  std::string_view name_;
};

std::vector<std::unique_ptr<Transport>> make_group_named(std::string_view name, int size) {
  auto transports = make_slow_group(size, 0, 1);
  for (auto& transport : transports) {
    transport = std::make_unique<Renamed>(std::move(transport), name);
  }
  return transports;
}

TEST(OneShotAllReduce, TheCrossoverCountsWhatARankSends) {
  EXPECT_TRUE(is_one_shot("shm", 2, 98304));
  EXPECT_FALSE(is_one_shot("shm", 2, 98305));
  EXPECT_TRUE(is_one_shot("tcp", 2, 131072));
  EXPECT_FALSE(is_one_shot("tcp", 2, 131073));
  EXPECT_TRUE(is_one_shot("tcp", 4, 43690));
  EXPECT_FALSE(is_one_shot("tcp", 4, 43691));
  EXPECT_TRUE(is_one_shot("shm", 1000, 0));
}

TEST(OneShotAllReduce, TheResultIsThatOfTwoPhasesBitForBit) {
  Options options;
  options.timeout = std::chrono::seconds(60);
  options.quantize_all_reduce = false;
  for (const int size : {2, 3, 4, 5}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kPremulSum}) {
        // Above the limit of "shm", below that of "tcp".
        const std::int64_t count =
            98304 / (size - 1) / static_cast<std::int64_t>(size_of(type)) + 37;
        const std::int64_t bytes = count * static_cast<std::int64_t>(size_of(type));
        const auto inputs = make_inputs(Family::kNormal, type, count, size, 11 + size);
        std::vector<const void*> pointers;
        for (const Bytes& input : inputs) pointers.push_back(input.data());
        Bytes expected(bytes);
        exact_reduce(pointers, count, type, op, 0.37f, size, expected.data());
        for (const char* name : {"tcp", "shm"}) {
          ASSERT_EQ(is_one_shot(name, size, bytes), std::string_view(name) == "tcp");
          expect_success(run_ranks(make_group_named(name, size), options, [&](Communicator& comm) {
            const CallOptions call{.timeout = {}, .factor = 0.37f};
            Bytes output(bytes);
            Bytes in_place = inputs[comm.rank()];
            comm.all_reduce(inputs[comm.rank()].data(), output.data(), count, type, op, call);
            const std::int64_t sent = of(comm.stats(), Operation::kAllReduce).wire_bytes;
            if (is_one_shot(name, size, bytes)) {
              EXPECT_EQ(sent, (size - 1) * bytes);
            } else {
              // Whole cache lines of elements a chunk: even but for one of them.
              EXPECT_NEAR(sent, 2 * (size - 1) * bytes / size, size * 2 * 64 * 4);
            }
            comm.all_reduce(in_place.data(), in_place.data(), count, type, op, call);
            EXPECT_TRUE(output == expected);
            EXPECT_TRUE(in_place == expected);
          }));
        }
      }
    }
  }
}

}  // namespace
}  // namespace agoq::testing
