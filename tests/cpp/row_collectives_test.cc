// Reduce-scatter and all-gather of rows: fused with what follows, against plain loops.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "contract_oracle.h"
#include "group_testing.h"
#include "row_oracle.h"

namespace agoq::testing {
namespace {

using Rows = std::vector<std::int64_t>;

/// One call's data: inputs[r] are rank r's rows for all owners.
struct Call {
  DataType type;
  std::int64_t width;
  Rows rows;
  std::vector<Bytes> inputs;
  std::vector<Bytes> residuals;
  std::vector<float> weight;

  Call(DataType of_type, std::int64_t of_width, Rows of_ranks)
      : type(of_type), width(of_width), rows(std::move(of_ranks)) {
    const std::int64_t all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    inputs = make_inputs(Family::kNormal, type, all * width, static_cast<int>(rows.size()), 5);
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      residuals.push_back(make_input(Family::kNormal, type, rows[rank] * width, 40 + rank));
    }
    for (std::int64_t i = 0; i < width; ++i) weight.push_back(0.25f + 0.01f * (i % 100));
  }

  std::int64_t first_row(int rank) const {
    return std::accumulate(rows.begin(), rows.begin() + rank, std::int64_t{0});
  }
  Bytes chunk(int rank, int owner) const {
    return slice(inputs[rank], type, first_row(owner) * width, rows[owner] * width);
  }
};

struct Outputs {
  Bytes sums;
  Bytes normed;
  Bytes encoded;
  std::vector<Bytes> gathered;         ///< From the encoded rows, by owner.
  std::vector<Bytes> gathered_normed;  ///< From the normed rows.
  Stats stats;
};

std::vector<void*> memory_of(std::vector<Bytes>& chunks, const Call& call) {
  std::vector<void*> pointers;
  for (const std::int64_t rows : call.rows) {
    chunks.emplace_back(static_cast<std::size_t>(rows * call.width) * size_of(call.type));
  }
  for (Bytes& chunk : chunks) pointers.push_back(chunk.data());
  return pointers;
}

Outputs run_rank(Communicator& comm, const Call& call, ReduceOp op, const CallOptions& options) {
  const int rank = comm.rank();
  std::vector<const void*> in;
  std::vector<Bytes> chunks;
  for (int owner = 0; owner < comm.size(); ++owner) chunks.push_back(call.chunk(rank, owner));
  for (const Bytes& chunk : chunks) in.push_back(chunk.data());
  Outputs outputs;
  outputs.sums.resize(call.residuals[rank].size());
  outputs.normed.resize(outputs.sums.size());
  const RowLayout layout(comm.options().format, {call.rows[rank], call.width});
  outputs.encoded.resize(static_cast<std::size_t>(layout.total_bytes()));
  RowEpilogue epilogue;
  epilogue.residual = call.residuals[rank].data();
  epilogue.norm = RmsNorm{call.weight.data(), 1e-6f};
  epilogue.normed = outputs.normed.data();
  epilogue.encoded = {outputs.encoded.data(), call.rows[rank], 0};
  comm.reduce_scatter_rows(in, call.rows, call.width, outputs.sums.data(), call.type, op, epilogue,
                           options);
  comm.all_gather_encoded_rows(outputs.encoded.data(), memory_of(outputs.gathered, call), call.rows,
                               call.width, call.type);
  outputs.stats = comm.stats();
  comm.all_gather_rows(outputs.normed.data(), memory_of(outputs.gathered_normed, call), call.rows,
                       call.width, call.type);
  return outputs;
}

std::vector<Outputs> run(const Call& call, const Options& options, ReduceOp op = ReduceOp::kSum,
                         const CallOptions& of_call = {},
                         const std::optional<Topology>& topology = {}) {
  const auto size = static_cast<int>(call.rows.size());
  std::vector<Outputs> outputs(call.rows.size());
  expect_success(run_ranks(
      make_inproc_group(size), options,
      [&](Communicator& comm) { outputs[comm.rank()] = run_rank(comm, call, op, of_call); },
      topology));
  return outputs;
}

/// What an owner should have, from the fp32 sum of each row.
template <typename SumOfRow>
void expect_finished(const Call& call, const Codec& codec, int owner, const Outputs& outputs,
                     const SumOfRow& sum_of) {
  Bytes normed;
  for (std::int64_t row = 0; row < call.rows[owner]; ++row) {
    const auto residual =
        to_floats(slice(call.residuals[owner], call.type, row * call.width, call.width), call.type);
    const OracleRow expected =
        oracle_row(sum_of(row), residual, call.type, RmsNorm{call.weight.data(), 1e-6f});
    EXPECT_TRUE(slice(outputs.sums, call.type, row * call.width, call.width) ==
                to_type(expected.sums, call.type));
    const Bytes of_row = to_type(expected.normed, call.type);
    normed.insert(normed.end(), of_row.begin(), of_row.end());
  }
  EXPECT_TRUE(outputs.normed == normed);
  EXPECT_TRUE(outputs.encoded == oracle_encode_rows(codec, normed, call.type, call.width));
}

void expect_gathered(const Codec& codec, const Call& call, const std::vector<Outputs>& all) {
  for (std::size_t owner = 0; owner < all.size(); ++owner) {
    Bytes decoded(all[owner].normed.size());
    RowCodec(codec).decode(all[owner].encoded.data(), {call.rows[owner], call.width},
                           decoded.data(), call.type);
    for (const Outputs& rank : all) {
      EXPECT_TRUE(rank.gathered[owner] == decoded);
      EXPECT_TRUE(rank.gathered_normed[owner] == decoded);
    }
  }
}

std::vector<Rows> rows_for(int size) {
  Rows uneven;
  for (int rank = 0; rank < size; ++rank) uneven.push_back(rank % 3 == 1 ? 0 : 2 * rank + 3);
  return {Rows(size, 4), uneven};
}

class RowCollectivesOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, RowCollectivesOfSize, ::testing::Values(2, 3, 4));

TEST_P(RowCollectivesOfSize, FuseWhatPlainLoopsDo) {
  const int size = GetParam();
  Options options = quantize_all();
  options.segment_numel = 700;  // one row and more than one
  const Codec codec(options.format);
  for (const DataType type : kTypes) {
    for (const std::int64_t width : {1, 130, 256, 333, 1100}) {
      for (const Rows& rows : rows_for(size)) {
        SCOPED_TRACE(std::string(to_string(type)) + " width " + std::to_string(width));
        const Call call(type, width, rows);
        const std::vector<Outputs> all = run(call, options, ReduceOp::kAvg);
        for (int owner = 0; owner < size; ++owner) {
          expect_finished(call, codec, owner, all[owner], [&](std::int64_t row) {
            std::vector<Bytes> pieces;
            for (int rank = 0; rank < size; ++rank) {
              pieces.push_back(slice(call.chunk(rank, owner), type, row * width, width));
            }
            return oracle_sum(codec, type, pieces, owner, 1.0f / static_cast<float>(size)).sum;
          });
        }
        expect_gathered(codec, call, all);
      }
    }
  }
}

TEST_P(RowCollectivesOfSize, ExactSumsAreFinishedToo) {
  const int size = GetParam();
  const Options options = quantize_all();
  CallOptions exact;
  exact.quantize = false;
  for (const DataType type : kTypes) {
    const Call call(type, 333, Rows(size, 3));
    const std::vector<Outputs> all = run(call, options, ReduceOp::kSum, exact);
    for (int owner = 0; owner < size; ++owner) {
      expect_finished(call, Codec(options.format), owner, all[owner], [&](std::int64_t row) {
        std::vector<float> sum(333, -0.0f);
        for (int rank = 0; rank < size; ++rank) {
          const auto piece = to_floats(slice(call.chunk(rank, owner), type, row * 333, 333), type);
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += piece[i];
        }
        return to_floats(to_type(sum, type), type);
      });
      EXPECT_EQ(of(all[owner].stats, Operation::kReduceScatter).exact_calls, 1);
    }
  }
}

TEST(RowCollectives, OneRankFinishesItsRows) {
  const Options options = quantize_all();
  const Call call(DataType::kBfloat16, 200, {5});
  const std::vector<Outputs> all = run(call, options);
  expect_finished(call, Codec(options.format), 0, all[0], [&](std::int64_t row) {
    return to_floats(slice(call.chunk(0, 0), call.type, row * 200, 200), call.type);
  });
  Bytes decoded(all[0].normed.size());
  RowCodec(Codec(options.format))
      .decode(all[0].encoded.data(), {5, 200}, decoded.data(), call.type);
  EXPECT_TRUE(all[0].gathered[0] == decoded);
  EXPECT_TRUE(all[0].gathered_normed[0] == all[0].normed);  // nothing travels, so exact
}

TEST(RowCollectives, SegmentsDoNotShowInTheBytes) {
  const Call call(DataType::kBfloat16, 333, {7, 7, 7});
  Options options = quantize_all();
  const std::vector<Outputs> whole = run(call, options);
  for (const std::int64_t segment : {1, 400, 1000}) {
    options.segment_numel = segment;
    const std::vector<Outputs> cut = run(call, options);
    for (std::size_t rank = 0; rank < cut.size(); ++rank) {
      EXPECT_TRUE(cut[rank].sums == whole[rank].sums);
      EXPECT_TRUE(cut[rank].normed == whole[rank].normed);
      EXPECT_TRUE(cut[rank].encoded == whole[rank].encoded);
      EXPECT_TRUE(cut[rank].gathered == whole[rank].gathered);
    }
  }
}

TEST(RowCollectives, TwoLevelsAddAsTheFlatBufferDoesWhereTheBlockDividesTheWidth) {
  Options options = quantize_all();
  options.algorithm = Algorithm::kTwoLevel;
  options.segment_numel = 900;
  const Topology topology(std::vector<int>{0, 0, 1, 1});
  const Call call(DataType::kFloat32, 256, {3, 5, 0, 6});
  const std::vector<Outputs> all = run(call, options, ReduceOp::kSum, {}, topology);
  std::vector<Bytes> plain(4);
  expect_success(run_ranks(
      make_inproc_group(4), options,
      [&](Communicator& comm) {
        std::vector<Bytes> chunks;
        std::vector<const void*> in;
        Rows counts;
        for (int owner = 0; owner < 4; ++owner) {
          chunks.push_back(call.chunk(comm.rank(), owner));
          counts.push_back(call.rows[owner] * 256);
        }
        for (const Bytes& chunk : chunks) in.push_back(chunk.data());
        plain[comm.rank()].resize(call.residuals[comm.rank()].size());
        comm.reduce_scatter(in, counts, plain[comm.rank()].data(), call.type, ReduceOp::kSum);
      },
      topology));
  for (int owner = 0; owner < 4; ++owner) {
    expect_finished(call, Codec(options.format), owner, all[owner], [&](std::int64_t row) {
      return to_floats(slice(plain[owner], call.type, row * 256, 256), call.type);
    });
  }
  expect_gathered(Codec(options.format), call, all);
}

TEST(RowCollectives, TwoLevelsKeepToRowsOfAnyWidth) {
  Options options = quantize_all();
  options.algorithm = Algorithm::kTwoLevel;
  const Topology topology(std::vector<int>{0, 0, 1, 1});
  const Call call(DataType::kFloat32, 333, {3, 5, 4, 6});
  options.segment_numel = 1;
  const std::vector<Outputs> cut = run(call, options, ReduceOp::kSum, {}, topology);
  options.segment_numel = 100000;
  const std::vector<Outputs> whole = run(call, options, ReduceOp::kSum, {}, topology);
  for (std::size_t rank = 0; rank < 4; ++rank) EXPECT_TRUE(cut[rank].sums == whole[rank].sums);
  expect_gathered(Codec(options.format), call, whole);
}

TEST(RowCollectives, EncodedRowsAreNotEncodedAgain) {
  Options options = quantize_all();
  options.quantize_all_gather = false;  // what is encoded travels so all the same
  const Call call(DataType::kFloat32, 333, {4, 4});
  for (const Outputs& rank : run(call, options)) {
    const OperationStats& counters = of(rank.stats, Operation::kAllGather);
    EXPECT_EQ(counters.quantized_calls, 1);
    EXPECT_EQ(counters.wire_bytes, RowLayout(options.format, {4, 333}).total_bytes());
    // Another rank's rows arrived decoded from those bytes, so they differ from the normed ones.
    EXPECT_TRUE(rank.gathered != rank.gathered_normed);
  }
}

TEST(RowCollectives, ACallMayChooseToBeQuantized) {
  Options options = quantize_all();
  options.quantize_reduce_scatter = false;
  CallOptions quantized;
  quantized.quantize = true;
  const Call call(DataType::kFloat32, 256, {4, 4});
  for (const Outputs& rank : run(call, options, ReduceOp::kSum, quantized)) {
    EXPECT_EQ(of(rank.stats, Operation::kReduceScatter).quantized_calls, 1);
  }
  for (const Outputs& rank : run(call, options)) {
    const OperationStats& counters = of(rank.stats, Operation::kReduceScatter);
    EXPECT_EQ(counters.exact_by_reason[static_cast<int>(ExactReason::kNotSelected)], 1);
  }
}

TEST(RowCollectives, RowsOfAnotherWidthAreAMismatch) {
  const auto outcomes = run_ranks(2, quantize_all(), [&](Communicator& comm) {
    const Rows rows(2, comm.rank() == 0 ? 6 : 3);
    std::vector<float> in(12 * 100), out(600);
    const void* chunks[] = {in.data(), in.data() + 600};
    comm.reduce_scatter_rows(chunks, rows, comm.rank() == 0 ? 100 : 200, out.data(),
                             DataType::kFloat32, ReduceOp::kSum);
  });
  EXPECT_EQ(outcomes[0].error, ErrorCode::kMismatch);
  EXPECT_NE(outcomes[0].words.find("divided otherwise"), std::string::npos) << outcomes[0].words;
}

TEST(RowCollectives, WrongArgumentsLeaveTheGroupUsable) {
  expect_success(run_ranks(2, quantize_all(), [&](Communicator& comm) {
    std::vector<double> in(400), out(200);
    const void* chunks[] = {in.data(), in.data() + 200};
    const Rows rows(2, 2);
    RowEpilogue epilogue;
    epilogue.residual = out.data();
    EXPECT_THROW(comm.reduce_scatter_rows(chunks, rows, 100, out.data(), DataType::kFloat64,
                                          ReduceOp::kSum, epilogue),
                 Error);
    EXPECT_THROW(
        comm.reduce_scatter_rows(chunks, rows, 0, out.data(), DataType::kFloat64, ReduceOp::kSum),
        Error);
    comm.reduce_scatter_rows(chunks, rows, 100, out.data(), DataType::kFloat64, ReduceOp::kSum);
  }));
}

}  // namespace
}  // namespace agoq::testing
