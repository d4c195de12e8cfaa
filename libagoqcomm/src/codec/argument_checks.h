// What every codec asks of its arguments, on the CPU and on CUDA. `function` is the caller's, with
// its class, for the messages of Error(kInvalidArgument).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "agoqcomm/codec.h"
#include "agoqcomm/types.h"

namespace agoq {

[[noreturn]] void throw_invalid(const char* function, const std::string& what);

inline std::string_view part_of_message(std::string_view words) { return words; }
std::string part_of_message(std::integral auto number) { return std::to_string(number); }

/// Joins the message only where the condition fails: joining them all would take a call of few
/// elements longer than its work.
template <class... Parts>
void require(bool condition, const char* function, const Parts&... parts) {
  if (condition) return;
  std::string what;
  ((what += part_of_message(parts)), ...);
  throw_invalid(function, what);
}

/// `whose` begins the message, as "elements" or "an owner's piece".
void check_type(const char* function, DataType type, const char* whose = "elements");
void check_count(const char* function, std::int64_t count);
void check_values(const char* function, const void* values, std::int64_t count);
/// `encoded`, which may be null, lies at a multiple of `alignment`.
void check_alignment(const char* function, const std::byte* encoded, std::size_t alignment);
void check_encoded(const char* function, const std::byte* encoded, std::int64_t count);
void check_rounding(const char* function, const Rounding& rounding);

/// Blocks are read before they are written: the `bytes` that a sum encodes may replace whole
/// pieces, which lie just as they do, but no part of one.
void check_replaced(const char* function, std::span<const std::byte* const> pieces, int own_rank,
                    const std::byte* encoded, std::int64_t bytes);

}  // namespace agoq
