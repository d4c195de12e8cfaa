// Of exactly the size asked for, so that AddressSanitizer's redzones begin where the buffer ends.
#include <cstdlib>
#include <cstring>
#include <new>

#include "cuemu/cuemu.h"
#include "device_buffer.h"

namespace agoq::testing {

DeviceBuffer::DeviceBuffer(std::int64_t size, int misalignment, const Bytes& contents)
    : size_(size) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, static_cast<std::size_t>(size + misalignment)) != 0) {
    throw std::bad_alloc();
  }
  allocation_ = static_cast<std::byte*>(memory);
  data_ = allocation_ + misalignment;
  std::memset(data_, 0xA5, static_cast<std::size_t>(size));
  if (!contents.empty()) std::memcpy(data_, contents.data(), contents.size());
}

DeviceBuffer::~DeviceBuffer() { std::free(allocation_); }

Bytes DeviceBuffer::read() const { return Bytes(data_, data_ + size_); }

bool DeviceBuffer::is_intact() const { return true; }

void set_schedule(std::uint64_t seed) { cuemu::set_options({seed}); }

std::int64_t kernel_launches() { return static_cast<std::int64_t>(cuemu::launches()); }

}  // namespace agoq::testing
