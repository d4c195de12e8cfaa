// Which elements a thread takes.
//
// A segment is cut into vectors of kVector elements and tiles of kWarp * kVectors vectors. A warp
// takes whole tiles, at a stride of all the grid's warps. Neighbouring lanes take neighbouring
// vectors, and a block's vectors lie in one tile: whatever the block length, its lanes meet by
// shuffles alone, and all lanes of a warp take every turn of a loop together.
#pragma once

#include <cstdint>

#include "codec/cuda/arguments.h"

namespace agoq::cuda {

__device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % kWarp); }

/// The tiles of the calling warp: for (Tiles t(count); t.more(); t.next()).
template <int kVectors>
class Tiles {
 public:
  __device__ __forceinline__ explicit Tiles(std::int64_t count)
      : count_(count),
        vector_((static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp) *
                kTile) {}

  __device__ __forceinline__ bool more() const { return vector_ * kVector < count_; }
  __device__ __forceinline__ void next() {
    vector_ += static_cast<std::int64_t>(gridDim.x) * (kThreads / kWarp) * kTile;
  }

  /// The calling lane's vector `i` of the tile; it may lie past the end.
  __device__ __forceinline__ std::int64_t vector(int i) const {
    return vector_ + i * kWarp + lane();
  }
  /// How many elements of a vector there are: kVector, but for those at and past the end.
  __device__ __forceinline__ int live(std::int64_t vector) const {
    const std::int64_t rest = count_ - vector * kVector;
    return rest >= kVector ? kVector : rest <= 0 ? 0 : static_cast<int>(rest);
  }
  /// For a vector that is not past the end.
  __device__ __forceinline__ bool is_last(std::int64_t vector) const {
    return (vector + 1) * kVector >= count_;
  }

 private:
  static constexpr int kTile = kWarp * kVectors;
  std::int64_t count_;
  std::int64_t vector_;  ///< The tile's first.
};

}  // namespace agoq::cuda
