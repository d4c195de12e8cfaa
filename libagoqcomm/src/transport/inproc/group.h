// What the ranks of an inproc group share: mailboxes, buffers and who has left.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "agoqcomm/transport.h"

namespace agoq::inproc {

inline constexpr std::align_val_t kAlignment{64};

/// 64-byte aligned memory of one message.
class Buffer {
 public:
  explicit Buffer(std::size_t capacity)
      : capacity_(capacity), data_(static_cast<std::byte*>(::operator new(capacity, kAlignment))) {}
  ~Buffer() { ::operator delete(data_, kAlignment); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return data_; }
  std::size_t capacity() const { return capacity_; }

 private:
  std::size_t capacity_;
  std::byte* data_;
};

/// One post_send(), shared by the messages it became.
struct Send {
  int from;
  std::vector<int> unread_by;      ///< Peers that have yet to read it.
  std::shared_ptr<Buffer> buffer;  ///< Null where the caller's memory is sent.
  const std::byte* data;
  std::size_t bytes;
};

struct Message {
  Tag tag;
  std::uint64_t call;  ///< Of the sender, counted by begin_call().
  Label label;
  std::shared_ptr<Send> send;
};

/// One rank's share. Everything is guarded by Group::mutex.
struct End {
  std::vector<std::deque<Message>> inbox;  ///< By sender, in the order of sending.
  std::condition_variable changed;
  std::uint64_t events = 0;          ///< Counts what a sleeping rank has to look at.
  std::optional<std::string> ended;  ///< Why this rank takes part no more.
  int being_copied = 0;              ///< Peers that are reading this rank's caller's memory.
  int buffers_out = 0;               ///< Send buffers held by the caller or not read by all.
  std::map<std::size_t, std::vector<std::shared_ptr<Buffer>>> pool;  ///< Free ones, by capacity.
};

struct Group {
  explicit Group(int size) : ends(size) {
    for (End& end : ends) end.inbox.resize(size);
  }

  void notify(int rank) {
    ++ends[rank].events;
    ends[rank].changed.notify_all();
  }

  /// Notes that `reader` needs the send no more; recycles its buffer after the last one.
  void mark_read(Send& send, int reader);
  std::shared_ptr<Buffer> take_buffer(int rank, std::size_t bytes);
  void recycle(int rank, std::shared_ptr<Buffer> buffer);

  std::mutex mutex;
  std::vector<End> ends;
};

}  // namespace agoq::inproc
