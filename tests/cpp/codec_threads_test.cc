// Codec calls that several threads share give the same bytes as one thread.
#include "codec/codec_threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "agoqcomm/codec.h"
#include "agoqcomm/error.h"
#include "codec_testing.h"

namespace agoq::testing {
namespace {

// Long enough for seven threads, and with a short last block.
constexpr std::int64_t kCount = 8192 * 9 + 77;

TEST(CodecThreads, EveryPartIsDoneOnce) {
  CodecThreads threads(3);
  for (int parts = 0; parts < 200; ++parts) {
    std::vector<std::atomic<int>> done(static_cast<std::size_t>(parts));
    threads.run(parts, [&](int part) { ++done[static_cast<std::size_t>(part)]; });
    for (const std::atomic<int>& times : done) EXPECT_EQ(times.load(), 1);
  }
}

TEST(CodecThreads, OthersDoPartsWhileTheCallerIsBusy) {
  CodecThreads threads(2);
  std::atomic<int> begun{0};
  std::atomic<int> alone{0};
  // Each part ends only when both have begun, which takes two threads.
  threads.run(2, [&](int) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    ++begun;
    while (begun < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    alone += begun < 2;
  });
  EXPECT_EQ(alone.load(), 0);
}

TEST(CodecThreads, CallersThatMeetDoNotWaitForEachOther) {
  CodecThreads threads(2);
  std::atomic<bool> entered{false};
  std::atomic<bool> release{false};
  std::thread slow([&] {
    threads.run(2, [&](int) {
      entered = true;
      while (!release) std::this_thread::yield();
    });
  });
  while (!entered) std::this_thread::yield();
  int sum = 0;
  threads.run(5, [&](int part) { sum += part; });  // alone, so that `sum` needs no lock
  EXPECT_EQ(sum, 10);
  release = true;
  slow.join();
}

TEST(CodecThreads, AForkedChildWorksAlone) {
  auto threads = std::make_unique<CodecThreads>(3);
  std::atomic<int> before{0};
  threads->run(8, [&](int) { ++before; });
  ASSERT_EQ(before.load(), 8);
  const pid_t child = ::fork();
  if (child == 0) {
    std::atomic<int> done{0};
    threads->run(8, [&](int) { ++done; });
    threads.reset();
    ::_exit(done == 8 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

class SharedCodec : public ::testing::TestWithParam<int> {};

/// All that a codec makes of `own` and two encoded pieces.
Bytes transcript(const Codec& codec, const Bytes& own, DataType type, const Bytes& piece,
                 const Rounding& rounding) {
  const std::int64_t encoded_bytes = WireLayout(codec.format(), kCount).total_bytes();
  const auto value_bytes = kCount * static_cast<std::int64_t>(size_of(type));
  Bytes all;
  const auto keep = [&](GuardedBuffer& buffer) {
    buffer.expect_intact();
    const Bytes contents = buffer.contents();
    all.insert(all.end(), contents.begin(), contents.end());
  };
  GuardedBuffer encoded(encoded_bytes);
  codec.encode(own.data(), type, kCount, encoded.data(), rounding);
  keep(encoded);
  for (const CacheUse use : {CacheUse::kCached, CacheUse::kStreamed}) {
    GuardedBuffer values(value_bytes);
    codec.decode(piece.data(), kCount, values.data(), type, use);
    keep(values);
  }
  GuardedBuffer accumulator(4 * kCount);
  std::memset(accumulator.data(), 0, static_cast<std::size_t>(4 * kCount));
  codec.decode_accumulate(piece.data(), kCount, reinterpret_cast<float*>(accumulator.data()));
  keep(accumulator);

  const std::byte* const encoded_pieces[] = {piece.data(), nullptr, piece.data()};
  GuardedBuffer in_place(value_bytes);
  std::memcpy(in_place.data(), own.data(), own.size());
  const Pieces pieces{encoded_pieces, in_place.data(), type, 1};
  GuardedBuffer sum(encoded_bytes);
  codec.sum_encode(pieces, kCount, 0.5f, sum.data(), in_place.data(), type, rounding);
  keep(sum);
  keep(in_place);
  codec.sum_decode(pieces, kCount, 0.5f, in_place.data(), type);
  keep(in_place);
  // The results are half as wide as what they replace.
  GuardedBuffer wide(4 * kCount);
  std::memset(wide.data(), 0x3f, static_cast<std::size_t>(4 * kCount));
  const Pieces narrowed{encoded_pieces, wide.data(), DataType::kFloat32, 1};
  codec.sum_decode(narrowed, kCount, 1.0f, wide.data(), DataType::kBfloat16);
  keep(wide);
  return all;
}

TEST_P(SharedCodec, GivesTheBytesOfOneThread) {
  const BlockFormat format;
  for (const CpuIsa isa : supported_isas()) {
    const Codec alone(format, isa);
    const Codec shared(format, isa, GetParam());
    for (const DataType type : kTypes) {
      const Bytes own = make_input(Family::kSpecials, type, kCount, 1);
      const Bytes piece = encode(alone, make_input(Family::kNormal, DataType::kFloat32, kCount, 2),
                                 DataType::kFloat32);
      for (const bool stochastic : {false, true}) {
        const Rounding rounding{.stochastic = stochastic, .seed = 7, .first_element = 5};
        EXPECT_EQ(transcript(shared, own, type, piece, rounding),
                  transcript(alone, own, type, piece, rounding))
            << to_string(isa) << " " << to_string(type) << " stochastic " << stochastic;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, SharedCodec, ::testing::Values(1, 2, 3, 7));

TEST(SharedCodecArguments, RefusesNoThreadsAndTooMany) {
  for (const int threads : {0, -1, Codec::kMaxThreads + 1}) {
    EXPECT_THROW(Codec({}, CpuIsa::kScalar, threads), Error) << threads;
  }
}

}  // namespace
}  // namespace agoq::testing
