// Which of this host's addresses peers are to connect to.
#pragma once

#include <string>

#include "agoqcomm/transport_config.h"
#include "transport/mesh/endpoint.h"

namespace agoq {

/// `interface` or the variables that stand for it; "" for none.
std::string chosen_interface(const TransportConfig& config);
/// The first usable address of `interface`, IPv4 before IPv6. Throws Error(kInvalidArgument) that
/// lists the interfaces there are.
Endpoint address_of_interface(const std::string& interface);
/// The address from which `store_address` ("host:port" or "") is reached; else that of this host's
/// name; else the first that is neither loopback nor link-local.
Endpoint outward_address(const std::string& store_address);

}  // namespace agoq
