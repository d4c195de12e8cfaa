// Block format = element format x block length x scale type. See wire_layout.h for the bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "agoqcomm/export.h"

namespace agoq {

/// How one code represents a number. src/format/formats.def is the table behind these names; the
/// values travel in the fingerprint: append, never reorder.
enum class ElementFormat : std::uint8_t {
  kInt8 = 0,  ///< -127 to 127.
  kFp4 = 1,   ///< E2M1: 0, .5, 1, 1.5, 2, 3, 4, 6 of either sign.
  kE2m3 = 2,  ///< Six bits: steps of 1/8 up to 2, of 1/4 up to 4, of 1/2 up to 7.5.
  kInt4 = 3,  ///< -7 to 7.
  kInt6 = 4,  ///< -31 to 31.
};

/// Type of the one scale that a block's elements share.
enum class ScaleType : std::uint8_t { kBfloat16 = 0, kFloat32 = 1 };

/// Value type; copy freely. The defaults are what collectives use: 8.125 bits an element.
struct AGOQ_API BlockFormat {
  ElementFormat element = ElementFormat::kInt8;
  int block = 128;  ///< Elements that share a scale: a power of two in [32, 1024].
  ScaleType scale = ScaleType::kBfloat16;

  /// Throws Error(kInvalidArgument) that names the field and what it may be.
  void validate() const;
  double bits_per_element() const;
  /// "int8/128/bf16"
  std::string name() const;

  bool operator==(const BlockFormat&) const = default;
};

inline constexpr int kMinBlock = 32;
inline constexpr int kMaxBlock = 1024;

AGOQ_API std::string_view to_string(ElementFormat format) noexcept;
AGOQ_API std::string_view to_string(ScaleType scale) noexcept;
/// Inverse of to_string; throws Error(kInvalidArgument) that lists the names there are.
AGOQ_API ElementFormat parse_element_format(std::string_view name);
AGOQ_API ScaleType parse_scale_type(std::string_view name);

}  // namespace agoq
