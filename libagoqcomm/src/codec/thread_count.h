// How many threads a rank's codec may use.
#pragma once

namespace agoq {

/// `wanted`, or where that is 0 this rank's share of the cores that the process may run on: those
/// divided by the ranks of the node, which are `local_ranks` or as many as the launcher says, if
/// that is more. At most kMostAutomaticThreads, since a training process has other use for its
/// cores.
int codec_thread_count(int wanted, int local_ranks);

inline constexpr int kMostAutomaticThreads = 4;

}  // namespace agoq
