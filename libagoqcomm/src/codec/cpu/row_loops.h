// The loops over a row of every ISA, the scalar one among them.
//
//   Isa: Vector (fp32), kLanes, load<type>, store<type>, broadcast, add, mul, canonical
//
// Include it into one file an ISA only, as block_kernels.h: everything is a template of types that
// are local to that file.
#pragma once

#include <algorithm>
#include <cstdint>

#include "codec/row_kernels.h"
#include "codec/values.h"

namespace agoq {

template <class Isa>
struct RowLoops {
  using Vector = typename Isa::Vector;
  static constexpr DataType kFloat = DataType::kFloat32;
  static constexpr std::int64_t kLanes = Isa::kLanes;

  template <DataType kType>
  static constexpr std::int64_t kBytes = kType == kFloat ? 4 : 2;

  static inline __attribute__((always_inline)) Vector at(const float* x) {
    return Isa::template load<kFloat>(x);
  }

  /// Rounds `y` to the type; x[i] and following, and `out` if it is not null, get the result.
  template <DataType kType>
  static inline __attribute__((always_inline)) void put(Vector y, std::int64_t i, float* x,
                                                        void* out) {
    alignas(64) std::uint8_t unwanted[64];
    auto* to = out == nullptr ? unwanted : static_cast<std::uint8_t*>(out) + i * kBytes<kType>;
    y = Isa::canonical(y);
    Isa::template store<kType>(to, y);
    if constexpr (kType != kFloat) y = Isa::template load<kType>(to);
    Isa::template store<kFloat>(x + i, y);
  }
  /// The same of one number, at the end of a row.
  template <DataType kType>
  static void put_one(float y, std::int64_t i, float* x, void* out) {
    std::uint8_t rounded[4];
    store_value<kType>(rounded, 0, canonical(y));
    x[i] = load_value<kType>(rounded, 0);
    if (out != nullptr) store_value<kType>(out, i, x[i]);
  }

  template <DataType kType>
  static void finish(float* x, std::int64_t width, const void* residual, void* out) {
    const auto* from = static_cast<const std::uint8_t*>(residual);
    std::int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes) {
      Vector y = at(x + i);
      if (from != nullptr) y = Isa::add(y, Isa::template load<kType>(from + i * kBytes<kType>));
      put<kType>(y, i, x, out);
    }
    for (; i < width; ++i) {
      put_one<kType>(from == nullptr ? x[i] : add(x[i], load_value<kType>(from, i)), i, x, out);
    }
  }

  static float sum_of_squares(const float* x, std::int64_t width) {
    alignas(64) float sums[kSquareLanes];
    float total = 0.0f;
    for (std::int64_t first = 0; first < width; first += kSquareRun) {
      const std::int64_t end = std::min(first + kSquareRun, padded_row(width));
      for (std::int64_t lane = 0; lane < kSquareLanes; lane += kLanes) {
        Vector sum = Isa::mul(at(x + first + lane), at(x + first + lane));
        for (std::int64_t i = first + kSquareLanes + lane; i < end; i += kSquareLanes) {
          sum = Isa::add(sum, Isa::mul(at(x + i), at(x + i)));
        }
        Isa::template store<kFloat>(sums + lane, sum);
      }
      std::int64_t half = kSquareLanes / 2;
      for (; half >= kLanes; half /= 2) {
        for (std::int64_t lane = 0; lane < half; lane += kLanes) {
          Isa::template store<kFloat>(sums + lane,
                                      Isa::add(at(sums + lane), at(sums + lane + half)));
        }
      }
      for (; half >= 1; half /= 2) {
        for (std::int64_t lane = 0; lane < half; ++lane) {
          sums[lane] = add(sums[lane], sums[lane + half]);
        }
      }
      total = add(total, sums[0]);
    }
    return total;
  }

  template <DataType kType>
  static void scale(float* x, std::int64_t width, float inverse, const float* weight, void* out) {
    const Vector factor = Isa::broadcast(inverse);
    std::int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes) {
      Vector y = Isa::mul(at(x + i), factor);
      if (weight != nullptr) y = Isa::mul(y, at(weight + i));
      put<kType>(y, i, x, out);
    }
    for (; i < width; ++i) {
      const float y = mul(x[i], inverse);
      put_one<kType>(weight == nullptr ? y : mul(y, load_value<kFloat>(weight, i)), i, x, out);
    }
  }
};

template <class Isa>
inline constexpr RowKernels kRowKernels = {
    {RowLoops<Isa>::template finish<DataType::kFloat32>,
     RowLoops<Isa>::template finish<DataType::kBfloat16>,
     RowLoops<Isa>::template finish<DataType::kFloat16>},
    RowLoops<Isa>::sum_of_squares,
    {RowLoops<Isa>::template scale<DataType::kFloat32>,
     RowLoops<Isa>::template scale<DataType::kBfloat16>,
     RowLoops<Isa>::template scale<DataType::kFloat16>},
};

}  // namespace agoq
