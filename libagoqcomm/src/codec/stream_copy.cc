#include "codec/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace agoq {

#if defined(__x86_64__)

void stream_copy(void* to, const void* from, std::size_t bytes) noexcept {
  constexpr std::size_t kLine = 64;
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(out) % kLine;
  const std::size_t head = misaligned == 0 ? 0 : std::min(kLine - misaligned, bytes);
  std::memcpy(out, in, head);
  std::size_t i = head;
  // Whole lines in one go: a line half written would leave the write-combining buffer twice.
  for (; i + kLine <= bytes; i += kLine) {
    for (std::size_t part = 0; part < kLine; part += 16) {
      const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i + part));
      _mm_stream_si128(reinterpret_cast<__m128i*>(out + i + part), x);
    }
  }
  std::memcpy(out + i, in + i, bytes - i);
}

void stream_fence() noexcept { _mm_sfence(); }

#else

void stream_copy(void* to, const void* from, std::size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}

void stream_fence() noexcept {}

#endif

}  // namespace agoq
