// Quantized all-gather against the numeric contract: every rank decodes the sender's bytes.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "contract_oracle.h"
#include "group_testing.h"

namespace agoq::testing {
namespace {

using Counts = std::vector<std::int64_t>;

/// What each rank holds afterwards: all chunks one after another.
std::vector<Bytes> all_gather(std::vector<std::unique_ptr<Transport>> transports,
                              const Options& options, DataType type,
                              const std::vector<Bytes>& chunks, bool in_place = false) {
  Counts counts;
  for (const Bytes& chunk : chunks) counts.push_back(chunk.size() / size_of(type));
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  std::vector<Bytes> outputs(chunks.size(), Bytes(total * size_of(type)));
  expect_success(run_ranks(std::move(transports), options, [&](Communicator& comm) {
    std::vector<void*> out;
    std::byte* next = outputs[comm.rank()].data();
    for (const Bytes& chunk : chunks) {
      out.push_back(next);
      next += chunk.size();
    }
    const Bytes& own = chunks[comm.rank()];
    if (in_place && !own.empty()) std::memcpy(out[comm.rank()], own.data(), own.size());
    comm.all_gather(in_place ? out[comm.rank()] : own.data(), out, counts, type);
  }));
  return outputs;
}

std::vector<Bytes> make_chunks(DataType type, const Counts& counts, unsigned seed) {
  std::vector<Bytes> chunks;
  for (const std::int64_t count : counts) {
    chunks.push_back(make_input(Family::kNormal, type, count, seed++));
  }
  return chunks;
}

Bytes joined(const std::vector<Bytes>& chunks) {
  Bytes all;
  for (const Bytes& chunk : chunks) all.insert(all.end(), chunk.begin(), chunk.end());
  return all;
}

class AllGatherOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, AllGatherOfSize, ::testing::Values(2, 3, 4, 5, 8));

TEST_P(AllGatherOfSize, EveryRankHoldsTheDecodedBytesOfTheSender) {
  const int size = GetParam();
  Options options = quantize_all();
  options.segment_numel = 4096;
  const Codec codec(options.format);
  for (const DataType type : kTypes) {
    for (const std::int64_t count : kCounts) {
      for (const bool uneven : {false, true}) {
        SCOPED_TRACE(std::string(to_string(type)) + " " + std::to_string(count));
        Counts counts(size, count);
        if (uneven) counts[size - 1] = 0;
        const auto chunks = make_chunks(type, counts, count + size);
        Bytes expected;
        for (const Bytes& chunk : chunks) {
          const std::int64_t n = chunk.size() / size_of(type);
          const Bytes values = to_type(decode(codec, encode(codec, chunk, type), n), type);
          expected.insert(expected.end(), values.begin(), values.end());
        }
        for (const Bytes& output : all_gather(make_inproc_group(size), options, type, chunks)) {
          EXPECT_TRUE(output == expected);
        }
      }
    }
  }
}

TEST(AllGather, ResultDependsOnNeitherSegmentNorTimingNorPlace) {
  const auto chunks = make_chunks(DataType::kFloat16, {10000, 1, 0, 25000}, 8);
  Options options = quantize_all();
  const auto reference = all_gather(make_inproc_group(4), options, DataType::kFloat16, chunks);
  for (const std::int64_t segment : {128, 384, 65536}) {
    options.segment_numel = segment;
    for (const bool in_place : {false, true}) {
      EXPECT_EQ(all_gather(make_inproc_group(4), options, DataType::kFloat16, chunks, in_place),
                reference);
    }
  }
  options.segment_numel = 512;
  for (int late = 0; late < 4; ++late) {
    EXPECT_EQ(all_gather(make_slow_group(4, late, late), options, DataType::kFloat16, chunks),
              reference);
  }
}

TEST(AllGather, IsExactUnlessAskedAndMovesAnyBytes) {
  Options options;  // The default quantizes no all-gather.
  options.segment_numel = 1000;
  for (const DataType type : {DataType::kFloat32, DataType::kOther}) {
    for (const int size : {1, 3}) {
      std::vector<Bytes> chunks;
      for (int rank = 0; rank < size; ++rank) {
        chunks.push_back(
            make_input(Family::kRandomBits, DataType::kFloat32, 5000 * rank + 3, rank));
      }
      const auto outputs = all_gather(make_inproc_group(size), options, type, chunks);
      for (const Bytes& output : outputs) EXPECT_TRUE(output == joined(chunks));
      for (const Bytes& output : all_gather(make_inproc_group(size), options, type, chunks, true)) {
        EXPECT_TRUE(output == joined(chunks));
      }
    }
  }
}

}  // namespace
}  // namespace agoq::testing
