// The first bytes each side of a connection sends: who it is, and proof that it has read the store.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace agoq {

/// 128 random bits that one rank publishes in the store and its peers send back to it.
using Secret = std::array<std::uint8_t, 16>;

/// From the system's generator; throws Error(kSystem).
Secret random_secret();
std::string to_hex(std::span<const std::uint8_t> bytes);

/// As it travels, in the byte order of the machines: both ends of a group run the same build.
struct Hello {
  std::uint32_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  Secret secret{};  ///< The receiver's.
};
static_assert(sizeof(Hello) == 32);

Hello make_hello(int from, int to, const Secret& secret_of_receiver);
/// Takes as long wherever the secrets differ.
bool is_valid(const Hello& hello, int to, const Secret& secret);

}  // namespace agoq
