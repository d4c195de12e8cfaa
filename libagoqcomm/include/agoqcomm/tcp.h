// The tcp transport: a full mesh of sockets.
#pragma once

#include <memory>

#include "agoqcomm/export.h"
#include "agoqcomm/store.h"
#include "agoqcomm/transport.h"
#include "agoqcomm/transport_config.h"

namespace agoq {

/// Connects all ranks with one another over IPv4 or IPv6; every rank calls it with the same store
/// and size. It returns when this rank's connections stand. Peers prove that they have read the
/// store; anyone else who connects is dropped. What travels is neither encrypted nor signed.
///
/// Throws Error: kTimeout naming the rank that did not come and its address, kPeerFailed when a
/// peer refused, kSystem when the OS did, kInvalidArgument for an interface that does not exist.
AGOQ_API std::unique_ptr<Transport> make_tcp_transport(Store& store, int rank, int size,
                                                       const TransportConfig& config = {});

}  // namespace agoq
