// Reduce-scatter, all-gather and all-reduce in two levels: first within each node, then between the
// nodes. See two_level_plan.h for who adds up what.
//
// To the owner of a part:
//
//   piece     encoded   a rank  -> its node's collector, or the owner on the owner's node
//   node sum  encoded   a collector -> the owner, who adds those of all nodes in node order
//
// and from it, in the same bytes all the way:
//
//   result    encoded   the owner -> its neighbours and the other nodes' collectors
//                       a collector -> its neighbours
//
// A value is therefore encoded up to twice on its way into a sum (once if its rank is alone on its
// node, or on the owner's), and once more if the sum travels.
//
// In step 0 every rank also shows its label to every other, as in the flat algorithms, since here
// most pairs of ranks exchange nothing else.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collective/step_window.h"
#include "collective/two_level_plan.h"

namespace agoq {

/// Not thread-safe. Buffers may be in place as with the flat algorithms.
class TwoLevel final : public StepWindow {
 public:
  /// As ReduceScatter, AllGather and AllReduce.
  static std::unique_ptr<TwoLevel> reduce_scatter(Transport& transport, SegmentExchange& exchange,
                                                  const TwoLevelPlan& plan,
                                                  std::span<const void* const> in, void* out);
  static std::unique_ptr<TwoLevel> all_gather(Transport& transport, SegmentExchange& exchange,
                                              const TwoLevelPlan& plan, const void* in,
                                              std::span<void* const> out);
  static std::unique_ptr<TwoLevel> all_reduce(Transport& transport, SegmentExchange& exchange,
                                              const TwoLevelPlan& plan, const void* in, void* out);

 protected:
  void open(Step& step) override;
  bool work(Step& step) override;

 private:
  /// What a call does of the two: sums to the owners, results from them.
  struct Phases {
    bool reduce;
    bool gather;
  };
  /// The caller's memory of each rank's chunk; null where this rank has none.
  struct Chunks {
    std::vector<const void*> in;
    std::vector<void*> out;
  };
  /// What this rank has to do with a part. Empty parts have no role.
  struct Role {
    int part = 0;
    int owner = 0;
    int collector = 0;         ///< On this rank's node.
    std::vector<int> targets;  ///< To whom this rank sends the result.
  };
  /// What every role of a call comes to.
  struct Roles {
    std::vector<Role> by_part;
    std::int64_t first = 0;  ///< The part after the own ones.
    std::vector<int> recipients;
    int buffers_a_step = 0;
  };

  TwoLevel(Transport& transport, SegmentExchange& exchange, const TwoLevelPlan& plan, Phases phases,
           Chunks chunks, Roles roles);
  static std::unique_ptr<TwoLevel> make(Transport& transport, SegmentExchange& exchange,
                                        const TwoLevelPlan& plan, Phases phases, Chunks chunks);
  static Roles find_roles(const TwoLevelPlan& plan, int rank, Phases phases, bool encodes);

  bool owns(const Role& role) const { return role.owner == rank(); }
  bool collects(const Role& role) const { return role.collector == rank(); }
  void exchange_labels(Step& step);
  void expect_summands(Step& step, const Role& role);
  void expect_result(Step& step, const Role& role);
  void make_sum(const Sum& sum, std::int64_t step);
  void take_result(const ReceiveSet::Receive& result, std::int64_t step);
  const void* input(int part, std::int64_t step) const;
  void* output(int part, std::int64_t step) const;
  std::int64_t byte_offset(int part, std::int64_t step) const;

  const TwoLevelPlan parts_;
  const Phases phases_;
  const Chunks chunks_;
  const std::vector<Role> roles_;  // By part.
  const std::int64_t first_;       // Part with which this rank starts to send.
};

}  // namespace agoq
