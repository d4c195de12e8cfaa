// Matches what peers send with what the caller has posted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "agoqcomm/transport.h"
#include "transport/mesh/buffer_pool.h"
#include "transport/mesh/id_table.h"
#include "transport/mesh/link.h"

namespace agoq {

/// One message: posted and not here, here and not posted (early), or both.
struct Receive {
  int peer = 0;
  Tag tag = 0;
  std::size_t bytes = 0;
  bool posted = false;
  bool started = false;  ///< The message has begun to arrive.
  bool complete = false;
  std::byte* into = nullptr;  ///< The caller's memory, if it gave any.
  bool into_caller = false;
  const std::byte* data = nullptr;  ///< Where the message is, once it has started.
  std::byte* pooled = nullptr;      ///< `data`, where it is the pool's.
  std::uint64_t handle = 0;         ///< For Link::give_back(), where `data` is the peer's memory.
  bool kept = false;
};

/// Not thread-safe.
class ReceiveTable {
 public:
  /// `early_bytes` bounds the copies kept for each peer of messages that nobody has posted.
  /// `give_back` is called for a message kept in a peer's memory once it is no longer needed.
  ReceiveTable(int size, std::size_t early_bytes,
               std::function<void(int peer, std::uint64_t handle)> give_back);

  /// Posts a receive and returns its id. Throws Error: kMismatch when the message is here and has
  /// another length, kInvalidArgument when the tag is posted already.
  std::uint64_t post(int peer, Tag tag, void* into, bool into_caller, std::size_t bytes);
  /// A message of the running call begins to arrive.
  Placement place(const Incoming& message);
  void on_received(std::uint64_t id);

  Receive* find(std::uint64_t id) { return receives_.find(id); }
  void release(std::uint64_t id);

  /// "" when every message that came was posted and every post was served, else what was not.
  std::string unmatched();
  /// What this rank awaits of `peer`, as words; "" for nothing.
  std::string awaited(int peer) const;

 private:
  /// Ids by tag. A list, since there are only as many as a call's window has messages.
  class ByTag {
   public:
    struct Entry {
      Tag tag;
      std::uint64_t id;
    };
    const Entry* find(Tag tag) const {
      for (const Entry& entry : entries_) {
        if (entry.tag == tag) return &entry;
      }
      return nullptr;
    }
    void add(Tag tag, std::uint64_t id) { entries_.push_back({tag, id}); }
    void erase(const Entry* entry) {
      entries_[static_cast<std::size_t>(entry - entries_.data())] = entries_.back();
      entries_.pop_back();
    }
    bool empty() const { return entries_.empty(); }
    const Entry& any() const { return entries_.front(); }

   private:
    std::vector<Entry> entries_;
  };

  void settle(Receive& receive);
  void forget_memory(Receive& receive);

  std::size_t early_bound_;
  std::function<void(int, std::uint64_t)> give_back_;
  BufferPool pool_;
  IdTable<Receive> receives_;
  std::vector<ByTag> unmatched_;  ///< Of each peer: posted and not started, or started and early.
  std::vector<std::size_t> early_bytes_;
};

}  // namespace agoq
