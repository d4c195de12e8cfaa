#include "transport/device_staging/host_exchange.h"

#include <cstring>
#include <string>

#include "agoqcomm/error.h"

namespace agoq {
namespace {

constexpr Tag kTag = 0;
// Tells these labels from those of a Communicator over the same transport.
constexpr char kMark[] = "staging";

Label label_of(std::uint32_t number) {
  Label label{};
  std::memcpy(label.data(), kMark, sizeof kMark);
  std::memcpy(label.data() + sizeof kMark, &number, sizeof number);
  return label;
}

std::uint32_t number_of(const Label& label) {
  std::uint32_t number = 0;
  std::memcpy(&number, label.data() + sizeof kMark, sizeof number);
  return number;
}

struct Pending {
  Ticket ticket;
  int peer;
  bool is_receive;
};

// True once all have completed; forgets those that have.
bool advance(Transport& transport, std::vector<Pending>& pending) {
  std::erase_if(pending, [&](const Pending& message) {
    if (!transport.test(message.ticket)) return false;
    transport.release(message.ticket);
    return true;
  });
  return pending.empty();
}

[[noreturn]] void time_out(const Transport& transport, const HostExchange& exchange,
                           const Pending& oldest, std::chrono::milliseconds timeout) {
  throw Error(ErrorCode::kTimeout,
              "staging over " + std::string(transport.name()) + ", exchange " +
                  std::to_string(exchange.number) + " on rank " + std::to_string(transport.rank()) +
                  ": Timed out after " + std::to_string(timeout.count()) + " ms waiting for " +
                  (oldest.is_receive ? "bytes of rank " : "delivery to rank ") +
                  std::to_string(oldest.peer) + "; see why it is late, or raise the timeout",
              oldest.peer);
}

}  // namespace

void run_host_exchange(Transport& transport, const HostExchange& exchange,
                       std::chrono::milliseconds timeout) {
  if (exchange.sends.empty() && exchange.receives.empty()) return;
  const Clock::time_point start = Clock::now();
  const bool endless = timeout >= std::chrono::hours(24 * 365 * 100);
  const Clock::time_point deadline = endless ? Clock::time_point::max() : start + timeout;
  try {
    transport.begin_call(label_of(exchange.number));
    std::vector<Pending> pending;
    for (const HostExchange::Receive& receive : exchange.receives) {
      const Ticket ticket = transport.post_receive(receive.peer, kTag, receive.data, receive.bytes);
      pending.push_back({ticket, receive.peer, true});
    }
    for (const HostExchange::Send& send : exchange.sends) {
      const Ticket ticket = transport.post_send(send.data, send.bytes, send.peers, kTag);
      pending.push_back({ticket, send.peers.front(), false});
    }
    while (!advance(transport, pending)) {
      if (Clock::now() >= deadline) time_out(transport, exchange, pending.front(), timeout);
      transport.wait(deadline);
    }
  } catch (const LabelMismatch& mismatch) {
    throw Error(ErrorCode::kMismatch,
                "rank " + std::to_string(mismatch.peer) + " is at exchange " +
                    std::to_string(number_of(mismatch.theirs)) + " of device memory, rank " +
                    std::to_string(transport.rank()) + " at " + std::to_string(exchange.number) +
                    ": the ranks' calls differ",
                mismatch.peer);
  }
}

}  // namespace agoq
