#include "agoqcomm/options.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "agoqcomm/error.h"

namespace agoq {
namespace {

struct Change {
  std::string field;
  std::function<void(Options&)> apply;
};

TEST(Options, DefaultsAreValid) { EXPECT_NO_THROW(Options().validate()); }

TEST(Options, ARefusalNamesTheField) {
  const std::vector<Change> wrong = {
      {"min_numel", [](Options& o) { o.min_numel = -1; }},
      {"segment_numel", [](Options& o) { o.segment_numel = 0; }},
      {"codec_threads", [](Options& o) { o.codec_threads = -1; }},
      {"codec_threads", [](Options& o) { o.codec_threads = 257; }},
      {"timeout", [](Options& o) { o.timeout = std::chrono::milliseconds(0); }},
      {"block", [](Options& o) { o.format.block = 33; }},
  };
  for (const Change& change : wrong) {
    Options options;
    change.apply(options);
    try {
      options.validate();
      ADD_FAILURE() << change.field << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(change.field), std::string::npos) << error.what();
    }
  }
}

TEST(Options, AFingerprintTellsAllThatResultsDependOn) {
  const std::vector<Change> changes = {
      {"format", [](Options& o) { o.format.block = 64; }},
      {"format", [](Options& o) { o.format.scale = ScaleType::kFloat32; }},
      {"stochastic_rounding", [](Options& o) { o.stochastic_rounding = true; }},
      {"seed", [](Options& o) { o.seed = 1; }},
      {"min_numel", [](Options& o) { o.min_numel = 5; }},
      {"quantize_all_reduce", [](Options& o) { o.quantize_all_reduce = false; }},
      {"quantize_reduce_scatter", [](Options& o) { o.quantize_reduce_scatter = false; }},
      {"quantize_all_gather", [](Options& o) { o.quantize_all_gather = true; }},
  };
  const auto own = fingerprint(Options());
  for (const Change& change : changes) {
    Options options;
    change.apply(options);
    const std::string text = compare_fingerprints(0, own, 3, fingerprint(options));
    EXPECT_NE(text.find(change.field), std::string::npos) << text;
    EXPECT_NE(text.find("rank 0"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 3"), std::string::npos) << text;
  }
  Options same;
  same.segment_numel = 128;
  same.codec_threads = 3;
  same.timeout = std::chrono::seconds(1);
  EXPECT_EQ(compare_fingerprints(0, own, 1, fingerprint(same)), "");
}

TEST(Options, FingerprintsOfOtherVersionsAreComparable) {
  const auto own = fingerprint(Options());
  auto theirs = own;
  theirs.push_back({"new_field", "yes"});
  for (const std::string& text :
       {compare_fingerprints(0, own, 1, theirs), compare_fingerprints(1, theirs, 0, own)}) {
    EXPECT_NE(text.find("new_field"), std::string::npos) << text;
    EXPECT_NE(text.find("absent"), std::string::npos) << text;
  }
}

TEST(ExactReason, FollowsFromWhatEveryRankSees) {
  const Options options;
  const auto reason = [&](Operation operation, DataType type, ReduceOp op, std::int64_t count,
                          int size) {
    return why_exact(operation, type, op, count, size, options);
  };
  const auto fp32 = DataType::kFloat32;
  const auto sum = ReduceOp::kSum;
  const std::int64_t large = options.min_numel;
  EXPECT_EQ(reason(Operation::kAllReduce, fp32, sum, large, 2), ExactReason::kNone);
  EXPECT_EQ(reason(Operation::kReduceScatter, DataType::kFloat16, ReduceOp::kAvg, large, 2),
            ExactReason::kNone);
  EXPECT_EQ(reason(Operation::kAllReduce, fp32, sum, large, 1), ExactReason::kOneRank);
  EXPECT_EQ(reason(Operation::kBroadcast, fp32, sum, large, 2), ExactReason::kOperation);
  EXPECT_EQ(reason(Operation::kAllGather, fp32, ReduceOp::kNone, large, 2),
            ExactReason::kNotSelected);
  EXPECT_EQ(reason(Operation::kAllReduce, DataType::kFloat64, sum, large, 2),
            ExactReason::kDataType);
  EXPECT_EQ(reason(Operation::kAllReduce, fp32, ReduceOp::kMax, large, 2), ExactReason::kReduceOp);
  EXPECT_EQ(reason(Operation::kAllReduce, fp32, sum, large - 1, 2), ExactReason::kSmall);
  Options all = options;
  all.quantize_all_gather = true;
  all.min_numel = 0;
  EXPECT_EQ(why_exact(Operation::kAllGather, fp32, ReduceOp::kNone, 1, 2, all), ExactReason::kNone);
  EXPECT_EQ(why_exact(Operation::kAllReduce, fp32, sum, 0, 2, all), ExactReason::kSmall);
}

TEST(ExactReason, EveryReasonHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int i = 0; i < kExactReasonCount; ++i) names.insert(to_string(static_cast<ExactReason>(i)));
  EXPECT_EQ(static_cast<int>(names.size()), kExactReasonCount);
  EXPECT_EQ(names.count("unknown"), 0u);
}

}  // namespace
}  // namespace agoq
