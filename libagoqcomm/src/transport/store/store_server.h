// The server of make_tcp_store().
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "transport/mesh/endpoint.h"
#include "transport/mesh/unique_fd.h"

namespace agoq {

// A request is this header, the key, and for kSet the value; the answer to both is a length and a
// value (empty for kSet). The answer to kGet comes when the key is set.
enum class StoreRequest : std::uint32_t { kSet = 0x73746f01, kGet = 0x73746f02 };
struct StoreHeader {
  StoreRequest request;
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;
};
inline constexpr std::uint32_t kMaxKeyBytes = 4096;
inline constexpr std::uint32_t kMaxValueBytes = 64 << 10;

/// Serves on a thread of its own from construction to destruction. A client that sends anything but
/// requests is dropped.
class StoreServer {
 public:
  /// The destructor waits for `clients` clients to have come and gone, or for 10 s.
  StoreServer(const Endpoint& endpoint, int clients);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

 private:
  struct Client {
    UniqueFd fd;
    std::string in;
    std::string out;
    std::string awaited;  ///< The key of a get that waits to be set.
    bool counted = false;
  };

  void serve();
  bool is_over() const;
  void accept_all();
  /// False once the client is to be dropped.
  bool read(Client& client);
  bool handle_requests(Client& client);
  void answer(Client& client, const std::string& value);
  void set(const std::string& key, std::string value);

  UniqueFd listener_;
  UniqueFd stop_;  ///< eventfd
  int expected_;
  int gone_ = 0;  ///< Clients that made a request and then closed.
  std::vector<Client> clients_;
  std::map<std::string, std::string> values_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace agoq
