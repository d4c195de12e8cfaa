#include "collective/call_label.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace agoq {
namespace {

CallLabel example() {
  CallLabel label;
  label.call = 7;
  label.operation = Operation::kAllReduce;
  label.type = DataType::kFloat32;
  label.reduce_op = ReduceOp::kSum;
  label.quantized = true;
  label.count = 4096;
  label.root = 3;
  label.factor = 0.5f;
  label.format = {.element = ElementFormat::kInt8, .block = 1024, .scale = ScaleType::kFloat32};
  label.segment_numel = 65536;
  label.counts_digest = 99;
  return label;
}

struct Change {
  std::function<void(CallLabel&)> apply;
  std::vector<std::string> words;  // Each must be in the description.
};

const std::vector<Change>& changes() {
  static const std::vector<Change> all = {
      {[](CallLabel& l) { l.call = 8; }, {"call 8", "call 7"}},
      {[](CallLabel& l) { l.operation = Operation::kBroadcast; }, {"broadcast", "all_reduce"}},
      {[](CallLabel& l) { l.type = DataType::kInt32; }, {"int32", "float32"}},
      {[](CallLabel& l) { l.reduce_op = ReduceOp::kMax; }, {"max", "sum"}},
      {[](CallLabel& l) { l.count = 4100; }, {"4100 elements", "4096"}},
      {[](CallLabel& l) { l.counts_digest = 1; }, {"divided"}},
      {[](CallLabel& l) { l.root = 1; }, {"root 1", "root 3"}},
      {[](CallLabel& l) { l.factor = 2; }, {"factor 2", "factor 0.5"}},
      {[](CallLabel& l) { l.quantized = false; }, {"exact", "quantized"}},
      {[](CallLabel& l) { l.format.block = 32; }, {"int8/32/fp32", "int8/1024/fp32"}},
      {[](CallLabel& l) { l.segment_numel = 128; }, {"segment_numel 128", "65536"}},
  };
  return all;
}

TEST(CallLabel, EveryFieldSurvivesPacking) {
  EXPECT_EQ(CallLabel::unpack(example().pack()).pack(), example().pack());
  for (const Change& change : changes()) {
    CallLabel changed = example();
    change.apply(changed);
    EXPECT_NE(changed.pack(), example().pack()) << change.words[0];
    EXPECT_EQ(CallLabel::unpack(changed.pack()).pack(), changed.pack()) << change.words[0];
  }
  EXPECT_EQ(CallLabel::unpack(example().pack()).describe(), example().describe());
}

TEST(CallLabel, ADifferenceNamesBothRanksAndBothValues) {
  for (const Change& change : changes()) {
    CallLabel theirs = example();
    change.apply(theirs);
    const std::string text = describe_difference(0, example(), 5, theirs);
    EXPECT_NE(text.find("rank 0"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 5"), std::string::npos) << text;
    for (const std::string& word : change.words) {
      EXPECT_NE(text.find(word), std::string::npos) << text << " lacks " << word;
    }
  }
}

TEST(CallLabel, WhatTwoRanksDoAloneIsCountedApart) {
  CallLabel send;
  send.operation = Operation::kSend;
  send.call = 7;
  CallLabel theirs = send;
  theirs.root = 5;
  EXPECT_EQ(describe_difference(0, send, 5, theirs),
            "rank 5 and rank 0 both send: one of the two must receive");
  theirs.operation = Operation::kBarrier;
  theirs.call = 8;
  EXPECT_EQ(describe_difference(0, send, 5, theirs),
            "rank 5 called barrier, rank 0 send: all ranks must make the same calls in the same "
            "order");
  EXPECT_EQ(theirs.describe(), "barrier, call 8");
  EXPECT_EQ(send.describe(), "send from rank 0, call 7");
}

TEST(CallLabel, DigestTellsOrderAndValue) {
  const std::vector<std::int64_t> a = {1, 2}, b = {2, 1}, c = {1, 2, 0};
  EXPECT_NE(digest(a), digest(b));
  EXPECT_NE(digest(a), digest(c));
  EXPECT_EQ(digest(a), digest(std::vector<std::int64_t>{1, 2}));
}

}  // namespace
}  // namespace agoq
