// Codes to numbers, as many registers at a time as a format's codes are loaded best, and numbers
// on to the caller's elements. Isa and Element are those of block_kernels.h.
//
// Include it into files compiled for one ISA only, as block_kernels.h.
#pragma once

#include <cstdint>

#include "agoqcomm/types.h"

#define AGOQ_UNROLL _Pragma("GCC unroll 16")
#define AGOQ_INLINE static inline __attribute__((always_inline))

namespace agoq {

/// `kGroup` registers of codes that lie one behind the other, or one where loops over single ones
/// are unrolled anyway.
template <class Isa, class Element, int kGroup>
struct CodeGroups {
  using Vector = typename Isa::Vector;
  static constexpr int kTogether = Element::kCompact ? kGroup : 1;
  static constexpr int kCodeBytes = Isa::kLanes * Element::kBits / 8;  ///< Of a register.
  using Group = Vector[kTogether];

  /// What codes stand for, before the scale.
  AGOQ_INLINE void load(const std::uint8_t* codes, Group& x) {
    if constexpr (requires { Element::load_group(codes, x); }) {
      Element::load_group(codes, x);
    } else {
      AGOQ_UNROLL
      for (int i = 0; i < kTogether; ++i) x[i] = Element::load(codes + i * kCodeBytes);
    }
  }

  /// NaN only as the canonical one: the scale's, which every product with it is too.
  AGOQ_INLINE void decode(const std::uint8_t* codes, Vector scale, Group& x) {
    load(codes, x);
    AGOQ_UNROLL
    for (int i = 0; i < kTogether; ++i) x[i] = Isa::mul(x[i], scale);
  }

  template <DataType kType, bool kStreamed>
  AGOQ_INLINE void store(std::uint8_t* to, const Group& x) {
    constexpr int kBytes = Isa::kLanes * (kType == DataType::kFloat32 ? 4 : 2);
    if constexpr (kTogether > 1) {
      AGOQ_UNROLL
      for (int i = 0; i < kTogether; i += 2) {
        Isa::template store_two<kType, kStreamed>(to + i * kBytes, x[i], x[i + 1]);
      }
    } else if constexpr (kStreamed) {
      Isa::template stream<kType>(to, x[0]);
    } else {
      Isa::template store<kType>(to, x[0]);
    }
  }
};

}  // namespace agoq
