#include "agoqcomm/block_format.h"

#include "agoqcomm/error.h"
#include "format/formats.h"

namespace agoq {
namespace {

struct ScaleInfo {
  ScaleType type;
  const char* name;
  int bits;
};
constexpr ScaleInfo kScales[] = {
    {ScaleType::kBfloat16, "bf16", 16},
    {ScaleType::kFloat32, "fp32", 32},
};

const ScaleInfo* find_scale(ScaleType type) noexcept {
  for (const ScaleInfo& info : kScales) {
    if (info.type == type) return &info;
  }
  return nullptr;
}

/// "a, b, c" of the names in a table, for messages.
template <class Table>
std::string names_in(const Table& table) {
  std::string names;
  for (const auto& row : table) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

[[noreturn]] void invalid(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

}  // namespace

void BlockFormat::validate() const {
  if (find_format(element) == nullptr) {
    invalid("BlockFormat.element is " + std::to_string(static_cast<int>(element)) +
            ", which names no format; the formats are: " + names_in(kFormats));
  }
  const bool power_of_two = block > 0 && (block & (block - 1)) == 0;
  if (!power_of_two || block < kMinBlock || block > kMaxBlock) {
    invalid("BlockFormat.block is " + std::to_string(block) + "; it must be a power of two from " +
            std::to_string(kMinBlock) + " to " + std::to_string(kMaxBlock));
  }
  if (find_scale(scale) == nullptr) {
    invalid("BlockFormat.scale is " + std::to_string(static_cast<int>(scale)) +
            ", which names no scale type; the types are: " + names_in(kScales));
  }
}

double BlockFormat::bits_per_element() const {
  validate();
  return find_format(element)->bits + static_cast<double>(find_scale(scale)->bits) / block;
}

std::string BlockFormat::name() const {
  return std::string(to_string(element)) + "/" + std::to_string(block) + "/" +
         std::string(to_string(scale));
}

std::string_view to_string(ElementFormat format) noexcept {
  const FormatInfo* info = find_format(format);
  return info != nullptr ? info->name : "unknown";
}

std::string_view to_string(ScaleType scale) noexcept {
  const ScaleInfo* info = find_scale(scale);
  return info != nullptr ? info->name : "unknown";
}

ElementFormat parse_element_format(std::string_view name) {
  for (const FormatInfo& info : kFormats) {
    if (name == info.name) return info.format;
  }
  invalid("there is no element format '" + std::string(name) +
          "'; the formats are: " + names_in(kFormats));
}

ScaleType parse_scale_type(std::string_view name) {
  for (const ScaleInfo& info : kScales) {
    if (name == info.name) return info.type;
  }
  invalid("there is no scale type '" + std::string(name) +
          "'; the types are: " + names_in(kScales));
}

}  // namespace agoq
