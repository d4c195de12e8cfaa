#include "collective/two_level.h"

#include <set>
#include <utility>

#include "collective/message_tag.h"

namespace agoq {
namespace {

// Null stays null: an empty chunk need not have memory.
template <typename Byte>
Byte* advanced(Byte* base, std::int64_t bytes) {
  return bytes == 0 ? base : base + bytes;
}

}  // namespace

std::unique_ptr<TwoLevel> TwoLevel::reduce_scatter(Transport& transport, SegmentExchange& exchange,
                                                   const TwoLevelPlan& plan,
                                                   std::span<const void* const> in, void* out) {
  Chunks chunks{{in.begin(), in.end()}, std::vector<void*>(in.size())};
  chunks.out[transport.rank()] = out;
  return make(transport, exchange, plan, {.reduce = true, .gather = false}, std::move(chunks));
}

std::unique_ptr<TwoLevel> TwoLevel::all_gather(Transport& transport, SegmentExchange& exchange,
                                               const TwoLevelPlan& plan, const void* in,
                                               std::span<void* const> out) {
  Chunks chunks{std::vector<const void*>(out.size()), {out.begin(), out.end()}};
  chunks.in[transport.rank()] = in;
  return make(transport, exchange, plan, {.reduce = false, .gather = true}, std::move(chunks));
}

std::unique_ptr<TwoLevel> TwoLevel::all_reduce(Transport& transport, SegmentExchange& exchange,
                                               const TwoLevelPlan& plan, const void* in,
                                               void* out) {
  Chunks chunks{std::vector<const void*>(transport.size()), std::vector<void*>(transport.size())};
  for (int part = 0; part < plan.parts(); ++part) {
    if (plan.offset_in_chunk(part) > 0) continue;
    const std::int64_t at = exchange.value_bytes(plan.segments().chunk_offset(part));
    chunks.in[plan.owner(part)] = advanced(static_cast<const std::byte*>(in), at);
    chunks.out[plan.owner(part)] = advanced(static_cast<std::byte*>(out), at);
  }
  return make(transport, exchange, plan, {.reduce = true, .gather = true}, std::move(chunks));
}

TwoLevel::TwoLevel(Transport& transport, SegmentExchange& exchange, const TwoLevelPlan& plan,
                   Phases phases, Chunks chunks, Roles roles)
    : StepWindow(transport, exchange, plan.segments(), std::move(roles.recipients),
                 roles.buffers_a_step),
      parts_(plan),
      phases_(phases),
      chunks_(std::move(chunks)),
      roles_(std::move(roles.by_part)),
      first_(roles.first) {}

std::unique_ptr<TwoLevel> TwoLevel::make(Transport& transport, SegmentExchange& exchange,
                                         const TwoLevelPlan& plan, Phases phases, Chunks chunks) {
  return std::unique_ptr<TwoLevel>(
      new TwoLevel(transport, exchange, plan, phases, std::move(chunks),
                   find_roles(plan, transport.rank(), phases, exchange.uses_send_buffers())));
}

TwoLevel::Roles TwoLevel::find_roles(const TwoLevelPlan& plan, int rank, Phases phases,
                                     bool encodes) {
  const Topology& topology = plan.topology();
  const int node = topology.node_of(rank);
  const std::vector<int>& local = topology.ranks_of(node);
  std::vector<int> neighbours;  // The next first, so that not everyone sends to the same.
  for (std::size_t i = 1; i < local.size(); ++i) {
    neighbours.push_back(local[(topology.local_rank(rank) + i) % local.size()]);
  }
  Roles roles;
  std::set<int> recipients;
  for (int part = 0; part < plan.parts(); ++part) {
    Role role{.part = part,
              .owner = plan.owner(part),
              .collector = plan.collector(part, node),
              .targets = {}};
    const bool owns = role.owner == rank;
    const bool collects = role.collector == rank;
    if (owns) {
      roles.first = part + 1;
      // Other nodes first: theirs is the longer way.
      for (int i = 1; i < topology.nodes(); ++i) {
        role.targets.push_back(plan.collector(part, (node + i) % topology.nodes()));
      }
    }
    if (collects) {
      role.targets.insert(role.targets.end(), neighbours.begin(), neighbours.end());
    }
    if (plan.segments().chunk_count(part) > 0) {
      if (phases.reduce && !owns) {
        recipients.insert(collects ? role.owner : role.collector);
        // Exact pieces are sent from the caller's memory, but sums have no place there.
        roles.buffers_a_step += encodes || (collects && !neighbours.empty());
      }
      if (phases.gather && !role.targets.empty()) {
        recipients.insert(role.targets.begin(), role.targets.end());
        roles.buffers_a_step += encodes;
      }
    }
    roles.by_part.push_back(std::move(role));
  }
  roles.recipients.assign(recipients.begin(), recipients.end());
  return roles;
}

void TwoLevel::open(Step& step) {
  if (step.index == 0) exchange_labels(step);
  for (const Role& role : roles_) {
    if (extent(role.part, step.index).count == 0) continue;
    if (phases_.reduce && collects(role)) expect_summands(step, role);
    if (phases_.gather && !owns(role)) expect_result(step, role);
  }
  // Each rank starts elsewhere, so that not everyone sends to the same.
  const auto parts = std::ssize(roles_);
  for (std::int64_t i = 0; i < parts; ++i) {
    const Role& role = roles_[(i + first_) % parts];
    const Extent piece = extent(role.part, step.index);
    if (piece.count == 0) continue;
    if (phases_.reduce && !collects(role)) {
      exchange_.send_piece(input(role.part, step.index), piece, {&role.collector, 1},
                           message_tag(Phase::kPiece, step.index, role.part));
    }
    if (!phases_.reduce && owns(role)) {
      exchange_.send_result(input(role.part, step.index), piece, role.targets,
                            message_tag(Phase::kResult, step.index, role.part),
                            output(role.part, step.index));
    }
  }
}

bool TwoLevel::work(Step& step) {
  bool progress = step.labels.poll(
      transport_, [&](const ReceiveSet::Receive& label) { transport_.release(label.ticket); });
  const auto nothing = [](const ReceiveSet::Receive&) {};
  for (Sum& sum : step.sums) {
    if (sum.taken) continue;
    progress |= sum.pieces.poll(transport_, nothing);
    progress |= sum.node_sums.poll(transport_, nothing);
    if (!sum.pieces.all_complete() || !sum.node_sums.all_complete()) continue;
    make_sum(sum, step.index);
    sum.taken = true;
    progress = true;
  }
  progress |= step.results.poll(
      transport_, [&](const ReceiveSet::Receive& result) { take_result(result, step.index); });
  return progress;
}

void TwoLevel::exchange_labels(Step& step) {
  const Tag tag = message_tag(Phase::kLabel, 0);
  for (const int peer : peers()) step.labels.add(peer, transport_.post_receive(peer, tag, 0), 0);
  exchange_.send_piece(nullptr, {}, peers(), tag);
}

void TwoLevel::expect_summands(Step& step, const Role& role) {
  const Topology& topology = parts_.topology();
  const int own_node = topology.node_of(rank());
  const std::int64_t count = extent(role.part, step.index).count;
  const std::int64_t bytes = exchange_.message_bytes(count);
  Sum& sum = step.sums.emplace_back(Sum{.chunk = role.part, .pieces = {}, .node_sums = {}});
  for (const int peer : topology.ranks_of(own_node)) {
    if (peer == rank()) continue;
    const Tag tag = message_tag(Phase::kPiece, step.index, role.part);
    sum.pieces.add(peer, exchange_.expect_piece(peer, count, tag), bytes);
  }
  if (!owns(role)) return;
  for (int node = 0; node < topology.nodes(); ++node) {
    if (node == own_node) continue;
    const int peer = parts_.collector(role.part, node);
    const Tag tag = message_tag(Phase::kNodeSum, step.index, role.part);
    sum.node_sums.add(peer, exchange_.expect_piece(peer, count, tag), bytes, node);
  }
}

void TwoLevel::expect_result(Step& step, const Role& role) {
  const int peer = collects(role) ? role.owner : role.collector;
  const std::int64_t count = extent(role.part, step.index).count;
  const Tag tag = message_tag(Phase::kResult, step.index, role.part);
  step.results.add(peer, exchange_.expect_result(peer, count, tag, output(role.part, step.index)),
                   exchange_.message_bytes(count), role.part);
}

void TwoLevel::make_sum(const Sum& sum, std::int64_t step) {
  const Role& role = roles_[sum.chunk];
  const void* own = input(role.part, step);
  const Extent all = extent(role.part, step);
  if (!owns(role)) {
    exchange_.send_node_sum(sum.pieces, own, all, role.owner,
                            message_tag(Phase::kNodeSum, step, role.part));
  } else if (phases_.gather) {
    exchange_.sum_and_send(sum.pieces, sum.node_sums, own, all, output(role.part, step),
                           role.targets, message_tag(Phase::kResult, step, role.part));
  } else {
    exchange_.sum(sum.pieces, sum.node_sums, own, all, output(role.part, step));
  }
}

void TwoLevel::take_result(const ReceiveSet::Receive& result, std::int64_t step) {
  const Role& role = roles_[result.key];
  const Extent all = extent(role.part, step);
  void* out = output(role.part, step);
  if (role.targets.empty()) {
    exchange_.take_result(result.ticket, all.count, out);
  } else {
    exchange_.forward_result(result.ticket, all, out, role.targets,
                             message_tag(Phase::kResult, step, role.part));
  }
}

const void* TwoLevel::input(int part, std::int64_t step) const {
  return advanced(static_cast<const std::byte*>(chunks_.in[parts_.owner(part)]),
                  byte_offset(part, step));
}

void* TwoLevel::output(int part, std::int64_t step) const {
  return advanced(static_cast<std::byte*>(chunks_.out[parts_.owner(part)]),
                  byte_offset(part, step));
}

std::int64_t TwoLevel::byte_offset(int part, std::int64_t step) const {
  return exchange_.value_bytes(parts_.offset_in_chunk(part) + plan_.segment(part, step).offset);
}

}  // namespace agoq
