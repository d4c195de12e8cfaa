// Store: how ranks find each other before they have a transport.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "agoqcomm/export.h"
#include "agoqcomm/transport.h"

namespace agoq {

/// A key-value store that all ranks of a group reach: torch's c10d Store, a broadcast over mpi4py,
/// or make_tcp_store(). Values are small (under 64 KiB) and may hold any bytes; a key is set once.
/// The secrets of the group travel through it, so whoever can read it can join.
///
/// Used by one thread at a time.
class AGOQ_API Store {
 public:
  virtual ~Store() = default;

  virtual void set(std::string_view key, std::string_view value) = 0;
  /// Waits until some rank has set `key`; throws Error(kTimeout) that names it after `deadline`.
  virtual std::string get(std::string_view key, Clock::time_point deadline) = 0;
  /// "host:port" of the store's server, or "": the route to it tells which local address the other
  /// hosts can reach.
  virtual std::string address() const { return {}; }
};

/// A store served by rank 0 at host:port (an IPv6 address without brackets); all other ranks
/// connect to it, and retry until `timeout`. On rank 0 the object owns a thread that serves, and
/// its destructor waits up to 10 s for the other ranks to close theirs.
AGOQ_API std::unique_ptr<Store> make_tcp_store(const std::string& host, std::uint16_t port,
                                               int rank, int size,
                                               std::chrono::milliseconds timeout);

}  // namespace agoq
