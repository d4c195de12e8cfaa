#include "transport/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <new>
#include <string>
#include <utility>

#include "transport/mesh/system_error.h"

namespace agoq {
namespace {

constexpr std::size_t kPage = 4096;
// Copies larger than this would leave the caches before they are read.
constexpr std::size_t kMostCopyBytes = std::size_t{128} << 10;
constexpr std::size_t kLeastBufferBytes = std::size_t{64} << 10;

std::size_t copies(int ranks) { return static_cast<std::size_t>(ranks) * kCopySlots; }

std::size_t rings_offset() { return sizeof(SegmentHeader); }
std::size_t slots_offset(int ranks) {
  return rings_offset() + static_cast<std::size_t>(ranks) * sizeof(Ring);
}
std::size_t data_offset(int ranks) {
  const std::size_t end = slots_offset(ranks) + (kBufferSlots + copies(ranks)) * sizeof(SlotState);
  return (end + kPage - 1) / kPage * kPage;
}

[[noreturn]] void throw_unsupported(const std::string& what, int error) {
  throw Error(ErrorCode::kUnsupported, what + ": " + error_text(error));
}

/// Bytes that the machine could give without swapping; 0 where it does not tell.
std::size_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    std::size_t kibibytes = 0;
    if (word == "MemAvailable:" && file >> kibibytes) return kibibytes << 10;
  }
  return 0;
}

}  // namespace

Segment::Segment(int fd, int ranks, std::size_t bytes)
    : ranks_(ranks), bytes_(bytes), data_offset_(data_offset(ranks)) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) throw_unsupported("cannot map shared memory", errno);
  base_ = static_cast<std::byte*>(base);
}

Segment::~Segment() { ::munmap(base_, bytes_); }

Ring& Segment::ring(int index) const {
  return reinterpret_cast<Ring*>(base_ + rings_offset())[index];
}

SlotState& Segment::slot(std::uint32_t slot) const {
  return reinterpret_cast<SlotState*>(base_ + slots_offset(ranks_))[slot];
}

std::uint32_t Segment::slots() const {
  return kBufferSlots + static_cast<std::uint32_t>(copies(ranks_));
}

std::size_t Segment::copy_bytes() const {
  // All copies together take up to a quarter.
  const std::size_t share = data_bytes() / 4 / copies(ranks_) / kPage * kPage;
  return std::clamp(share, kPage, kMostCopyBytes);
}

std::size_t Segment::buffer_bytes() const { return data_bytes() - copies(ranks_) * copy_bytes(); }

std::uint32_t Segment::copy_slot(int reader, std::uint32_t number) const {
  return kBufferSlots + static_cast<std::uint32_t>(reader) * kCopySlots + number;
}

std::byte* Segment::copy_data(int reader, std::uint32_t number) const {
  return data() + buffer_bytes() + (copy_slot(reader, number) - kBufferSlots) * copy_bytes();
}

std::shared_ptr<Segment> Segment::create(int ranks, std::size_t data_bytes) {
  data_bytes = std::max(data_bytes, copies(ranks) * kPage + kLeastBufferBytes);
  const std::size_t bytes = data_offset(ranks) + (data_bytes + kPage - 1) / kPage * kPage;
  // The kernel would grant more than there is, and then kill a process for it.
  if (const std::size_t available = available_bytes(); available != 0 && bytes > available) {
    throw_unsupported("no " + std::to_string(bytes) + " bytes of shared memory", ENOMEM);
  }
  UniqueFd fd(::memfd_create("agoq", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw_unsupported("cannot make shared memory", errno);
  const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  if (error != 0) {
    throw_unsupported("no " + std::to_string(bytes) + " bytes of shared memory", error);
  }
  // A segment that shrank would kill whoever reads it.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    throw_unsupported("cannot seal shared memory", errno);
  }
  std::shared_ptr<Segment> segment(new Segment(fd.get(), ranks, bytes));
  segment->fd_ = std::move(fd);
  SegmentHeader* header = new (segment->base_) SegmentHeader{};
  header->bytes = bytes;
  header->ranks = static_cast<std::uint32_t>(ranks);
  return segment;
}

std::shared_ptr<Segment> Segment::attach(const UniqueFd& fd, int ranks) {
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0)
    throw_unsupported("no shared memory came from a peer", errno);
  const std::size_t bytes = static_cast<std::size_t>(status.st_size);
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (bytes <= data_offset(ranks) + copies(ranks) * kPage || seals < 0 ||
      !(seals & F_SEAL_SHRINK)) {
    throw Error(ErrorCode::kUnsupported, "a peer's descriptor is no sealed segment of this group");
  }
  std::shared_ptr<Segment> segment(new Segment(fd.get(), ranks, bytes));
  if (segment->header().bytes != bytes ||
      segment->header().ranks != static_cast<std::uint32_t>(ranks)) {
    throw Error(ErrorCode::kUnsupported, "a peer's segment is laid out for another group");
  }
  return segment;
}

}  // namespace agoq
