#include "transport/mesh/hello.h"

#include <sys/random.h>

#include "transport/mesh/system_error.h"

namespace agoq {
namespace {

constexpr std::uint32_t kMagic = 0x716f6761;  // "agoq" as a little-endian machine sends it.
// Of hello, frames and shared segments alike: raise it when any of their layouts changes.
constexpr std::uint32_t kVersion = 1;

}  // namespace

Secret random_secret() {
  Secret secret;
  std::size_t filled = 0;
  while (filled < secret.size()) {
    const ssize_t got = ::getrandom(secret.data() + filled, secret.size() - filled, 0);
    if (got < 0 && errno != EINTR) throw_system("cannot get random bytes");
    if (got > 0) filled += static_cast<std::size_t>(got);
  }
  return secret;
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Hello make_hello(int from, int to, const Secret& secret_of_receiver) {
  return {kMagic, kVersion, static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to),
          secret_of_receiver};
}

bool is_valid(const Hello& hello, int to, const Secret& secret) {
  std::uint8_t difference = 0;
  for (std::size_t i = 0; i < secret.size(); ++i) difference |= hello.secret[i] ^ secret[i];
  return (difference == 0) & (hello.magic == kMagic) & (hello.version == kVersion) &
         (hello.to == static_cast<std::uint32_t>(to));
}

}  // namespace agoq
