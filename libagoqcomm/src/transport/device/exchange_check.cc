#include "transport/device/exchange_check.h"

#include <string>

#include "agoqcomm/error.h"

namespace agoq {
namespace {

template <typename Message>
void check_messages(std::string_view transport, int rank, int size,
                    std::span<const Message> messages, const char* what) {
  const auto refuse = [&](const std::string& words) {
    throw Error(ErrorCode::kInvalidArgument, std::string(transport) + ": " + what + " " + words +
                                                 " (an exchange of rank " + std::to_string(rank) +
                                                 " of " + std::to_string(size) + ")");
  };
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (message.peer < 0 || message.peer >= size || message.peer == rank) {
      refuse("names peer " + std::to_string(message.peer) + ", which is no other rank");
    }
    if (message.bytes == 0 || message.data == nullptr) {
      refuse("for peer " + std::to_string(message.peer) + " is empty; leave it out");
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (messages[j].peer == message.peer) {
        refuse("for peer " + std::to_string(message.peer) + " is there twice");
      }
    }
  }
}

}  // namespace

void check_exchange(std::string_view transport, int rank, int size,
                    std::span<const DeviceSend> sends, std::span<const DeviceReceive> receives) {
  check_messages(transport, rank, size, sends, "a send");
  check_messages(transport, rank, size, receives, "a receive");
}

}  // namespace agoq
