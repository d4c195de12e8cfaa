#include "collective/exact_reduce.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <string>
#include <type_traits>

#include "agoqcomm/codec.h"
#include "agoqcomm/error.h"
#include "codec/values.h"

namespace agoq {
namespace {

// How elements of a type are read, reduced and written. Scale is what avg and premul_sum multiply
// by.
template <DataType kType>
struct NarrowFloat {
  using Value = float;
  using Scale = float;
  static Value load(const void* from, std::int64_t i) { return load_value<kType>(from, i); }
  static void store(void* to, std::int64_t i, Value x) { store_value<kType>(to, i, x); }
};

template <typename T, typename ScaleType>
struct Plain {
  using Value = T;
  using Scale = ScaleType;
  static Value load(const void* from, std::int64_t i) {
    Value x;
    std::memcpy(&x, static_cast<const char*>(from) + i * sizeof(T), sizeof(T));
    return x;
  }
  static void store(void* to, std::int64_t i, Value x) {
    std::memcpy(static_cast<char*>(to) + i * sizeof(T), &x, sizeof(T));
  }
};
using Float64 = Plain<double, double>;
template <typename T>
using Complex = Plain<std::complex<T>, T>;
// Integers: avg divides by a count of ranks.
template <typename T>
using Integer = Plain<T, std::int64_t>;

struct Bool : Plain<std::uint8_t, std::int64_t> {
  static Value load(const void* from, std::int64_t i) {
    return static_cast<const std::uint8_t*>(from)[i] != 0;
  }
};

template <typename T>
inline constexpr bool kIsComplex = false;
template <typename T>
inline constexpr bool kIsComplex<std::complex<T>> = true;

// Arithmetic of integers wraps: done in a type wide enough and unsigned, where that is defined.
template <typename T>
using Wrapping = std::make_unsigned_t<std::common_type_t<T, int>>;

struct Sum {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    } else {
      return a + b;
    }
  }
};
struct Product {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    } else if constexpr (kIsComplex<T>) {
      // Spelt out: operator* calls a library function for the infinities, once an element.
      return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
    } else {
      return a * b;
    }
  }
};
// A NaN on either side is passed on.
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return a < b || std::isnan(a) ? a : b;
    } else {
      return a < b ? a : b;
    }
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return a > b || std::isnan(a) ? a : b;
    } else {
      return a > b ? a : b;
    }
  }
};
struct BitAnd {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct BitOr {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct BitXor {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

using Buffers = std::span<const void* const>;

// `out` may be one of the pieces, and no element depends on another: what the pragma says.
template <typename Type, typename Op, typename Finish>
[[gnu::always_inline]] inline void reduce_in_order(Buffers pieces, std::int64_t count, void* out,
                                                   Op op, Finish finish) {
  // Partial results of more than two pieces; a tile stays in L1.
  constexpr std::int64_t kTile = 512;
  typename Type::Value partial[kTile];
  const void* const first = pieces.front();
  const void* const second = pieces[1];
  const void* const last = pieces.back();
  if (pieces.size() == 2) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      Type::store(out, i, finish(op(Type::load(first, i), Type::load(second, i))));
    }
    return;
  }
  for (std::int64_t start = 0; start < count; start += kTile) {
    const std::int64_t n = std::min(kTile, count - start);
    for (std::int64_t i = 0; i < n; ++i) {
      partial[i] = op(Type::load(first, start + i), Type::load(second, start + i));
    }
    for (const void* piece : pieces.subspan(2, pieces.size() - 3)) {
      for (std::int64_t i = 0; i < n; ++i)
        partial[i] = op(partial[i], Type::load(piece, start + i));
    }
    for (std::int64_t i = 0; i < n; ++i) {
      Type::store(out, start + i, finish(op(partial[i], Type::load(last, start + i))));
    }
  }
}

// The same bits from every instruction set: no operation is contracted or reordered.
#if defined(__x86_64__)
template <typename Type, typename Op, typename Finish>
[[gnu::target("avx2")]] void reduce_avx2(Buffers pieces, std::int64_t count, void* out, Op op,
                                         Finish finish) {
  reduce_in_order<Type>(pieces, count, out, op, finish);
}
bool use_avx2() {
  static const bool use = selected_cpu_isa() != CpuIsa::kScalar;
  return use;
}
#endif

template <typename Type, typename Op, typename Finish>
void reduce_pieces(Buffers pieces, std::int64_t count, void* out, Op op, Finish finish) {
  if (pieces.size() == 1) {
    for (std::int64_t i = 0; i < count; ++i) Type::store(out, i, finish(Type::load(pieces[0], i)));
    return;
  }
#if defined(__x86_64__)
  if (use_avx2()) return reduce_avx2<Type>(pieces, count, out, op, finish);
#endif
  reduce_in_order<Type>(pieces, count, out, op, finish);
}

template <typename Type, typename Op>
void reduce(Buffers pieces, std::int64_t count, void* out, Op op) {
  reduce_pieces<Type>(pieces, count, out, op, [](auto x) { return x; });
}

template <typename Type>
void reduce_and_scale(Buffers pieces, std::int64_t count, void* out, typename Type::Scale factor) {
  reduce_pieces<Type>(pieces, count, out, Sum{}, [factor](auto x) { return x * factor; });
}

template <typename Type>
void average(Buffers pieces, std::int64_t count, int ranks, void* out) {
  using Value = typename Type::Value;
  using Scale = typename Type::Scale;
  const auto divisor = static_cast<Scale>(ranks);
  if constexpr (std::is_integral_v<Value>) {
    reduce_pieces<Type>(pieces, count, out, Sum{},
                        [divisor](Value x) { return static_cast<Value>(x / divisor); });
  } else {
    reduce_and_scale<Type>(pieces, count, out, Scale{1} / divisor);
  }
}

// The operations that every type of a kind has, and that check_reducible() lets through.
template <typename Type>
void reduce_float(Buffers pieces, std::int64_t count, ReduceOp op, float factor, int ranks,
                  void* out) {
  switch (op) {
    case ReduceOp::kAvg:
      return average<Type>(pieces, count, ranks, out);
    case ReduceOp::kPremulSum:
      return reduce_and_scale<Type>(pieces, count, out, factor);
    case ReduceOp::kProduct:
      return reduce<Type>(pieces, count, out, Product{});
    case ReduceOp::kMin:
      return reduce<Type>(pieces, count, out, Min{});
    case ReduceOp::kMax:
      return reduce<Type>(pieces, count, out, Max{});
    default:
      return reduce<Type>(pieces, count, out, Sum{});
  }
}

template <typename Type>
void reduce_integer(Buffers pieces, std::int64_t count, ReduceOp op, int ranks, void* out) {
  switch (op) {
    case ReduceOp::kAvg:
      return average<Type>(pieces, count, ranks, out);
    case ReduceOp::kProduct:
      return reduce<Type>(pieces, count, out, Product{});
    case ReduceOp::kMin:
      return reduce<Type>(pieces, count, out, Min{});
    case ReduceOp::kMax:
      return reduce<Type>(pieces, count, out, Max{});
    case ReduceOp::kBitAnd:
      return reduce<Type>(pieces, count, out, BitAnd{});
    case ReduceOp::kBitOr:
      return reduce<Type>(pieces, count, out, BitOr{});
    case ReduceOp::kBitXor:
      return reduce<Type>(pieces, count, out, BitXor{});
    default:
      return reduce<Type>(pieces, count, out, Sum{});
  }
}

void reduce_bool(Buffers pieces, std::int64_t count, ReduceOp op, void* out) {
  switch (op) {
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBitAnd:
      return reduce<Bool>(pieces, count, out, BitAnd{});
    case ReduceOp::kBitXor:
      return reduce<Bool>(pieces, count, out, BitXor{});
    default:
      return reduce<Bool>(pieces, count, out, BitOr{});
  }
}

template <typename Type>
void reduce_complex(Buffers pieces, std::int64_t count, ReduceOp op, int ranks, void* out) {
  switch (op) {
    case ReduceOp::kAvg:
      return average<Type>(pieces, count, ranks, out);
    case ReduceOp::kProduct:
      return reduce<Type>(pieces, count, out, Product{});
    default:
      return reduce<Type>(pieces, count, out, Sum{});
  }
}

// A set of operations, as bits.
constexpr unsigned bit(ReduceOp op) { return 1u << static_cast<unsigned>(op); }
constexpr unsigned kArithmetic = bit(ReduceOp::kSum) | bit(ReduceOp::kProduct);
constexpr unsigned kOrder = bit(ReduceOp::kMin) | bit(ReduceOp::kMax);
constexpr unsigned kBitwise =
    bit(ReduceOp::kBitAnd) | bit(ReduceOp::kBitOr) | bit(ReduceOp::kBitXor);

struct Kind {
  const char* operations;  // For the message.
  unsigned set;
};
constexpr Kind kFloatKind{"sum, avg, premul_sum, product, min and max",
                          kArithmetic | kOrder | bit(ReduceOp::kAvg) | bit(ReduceOp::kPremulSum)};
constexpr Kind kIntegerKind{"sum, avg, product, min, max and the bitwise operations",
                            kArithmetic | kOrder | kBitwise | bit(ReduceOp::kAvg)};
constexpr Kind kBoolKind{"sum, product, min, max and the bitwise operations",
                         kArithmetic | kOrder | kBitwise};
constexpr Kind kComplexKind{"sum, avg and product", kArithmetic | bit(ReduceOp::kAvg)};
constexpr Kind kNoKind{"no reduction", 0};

const Kind& kind_of(DataType type) {
  switch (type) {
    case DataType::kFloat32:
    case DataType::kBfloat16:
    case DataType::kFloat16:
    case DataType::kFloat64:
      return kFloatKind;
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kInt16:
    case DataType::kInt32:
    case DataType::kInt64:
      return kIntegerKind;
    case DataType::kBool:
      return kBoolKind;
    case DataType::kComplex64:
    case DataType::kComplex128:
      return kComplexKind;
    case DataType::kOther:
      break;
  }
  return kNoKind;
}

}  // namespace

void check_reducible(DataType type, ReduceOp op) {
  const Kind& kind = kind_of(type);
  const bool known = static_cast<unsigned>(op) < 32;
  if (known && (kind.set & bit(op)) != 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              "elements of " + std::string(to_string(type)) + " cannot be reduced by " +
                  std::string(to_string(op)) + "; this type has " + kind.operations);
}

void exact_reduce(Buffers pieces, std::int64_t count, DataType type, ReduceOp op, float factor,
                  int ranks, void* out) {
  switch (type) {
    case DataType::kFloat32:
      return reduce_float<NarrowFloat<DataType::kFloat32>>(pieces, count, op, factor, ranks, out);
    case DataType::kBfloat16:
      return reduce_float<NarrowFloat<DataType::kBfloat16>>(pieces, count, op, factor, ranks, out);
    case DataType::kFloat16:
      return reduce_float<NarrowFloat<DataType::kFloat16>>(pieces, count, op, factor, ranks, out);
    case DataType::kFloat64:
      return reduce_float<Float64>(pieces, count, op, factor, ranks, out);
    case DataType::kInt8:
      return reduce_integer<Integer<std::int8_t>>(pieces, count, op, ranks, out);
    case DataType::kUint8:
      return reduce_integer<Integer<std::uint8_t>>(pieces, count, op, ranks, out);
    case DataType::kInt16:
      return reduce_integer<Integer<std::int16_t>>(pieces, count, op, ranks, out);
    case DataType::kInt32:
      return reduce_integer<Integer<std::int32_t>>(pieces, count, op, ranks, out);
    case DataType::kInt64:
      return reduce_integer<Integer<std::int64_t>>(pieces, count, op, ranks, out);
    case DataType::kBool:
      return reduce_bool(pieces, count, op, out);
    case DataType::kComplex64:
      return reduce_complex<Complex<float>>(pieces, count, op, ranks, out);
    case DataType::kComplex128:
      return reduce_complex<Complex<double>>(pieces, count, op, ranks, out);
    case DataType::kOther:
      return;
  }
}

}  // namespace agoq
