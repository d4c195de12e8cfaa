#include "transport/inproc/group.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace agoq::inproc {

void Group::mark_read(Send& send, int reader) {
  std::erase(send.unread_by, reader);
  if (!send.unread_by.empty()) return;
  if (send.buffer != nullptr) {
    --ends[send.from].buffers_out;
    recycle(send.from, std::move(send.buffer));
  }
  notify(send.from);
}

std::shared_ptr<Buffer> Group::take_buffer(int rank, std::size_t bytes) {
  const std::size_t capacity = std::bit_ceil(std::max<std::size_t>(bytes, 64));
  auto& free = ends[rank].pool[capacity];
  if (free.empty()) return std::make_shared<Buffer>(capacity);
  std::shared_ptr<Buffer> buffer = std::move(free.back());
  free.pop_back();
  return buffer;
}

void Group::recycle(int rank, std::shared_ptr<Buffer> buffer) {
  ends[rank].pool[buffer->capacity()].push_back(std::move(buffer));
}

}  // namespace agoq::inproc
