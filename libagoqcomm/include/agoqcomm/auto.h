// The auto transport: shared memory inside a host, sockets between hosts.
#pragma once

#include <memory>

#include "agoqcomm/export.h"
#include "agoqcomm/store.h"
#include "agoqcomm/transport.h"
#include "agoqcomm/transport_config.h"

namespace agoq {

/// One transport over both kinds of links: a message for peers near and far is encoded once, into
/// shared memory, and sent from there. The ranks of a host that cannot share memory use tcp among
/// themselves. Errors are those of make_tcp_transport().
AGOQ_API std::unique_ptr<Transport> make_auto_transport(Store& store, int rank, int size,
                                                        const TransportConfig& config = {});

}  // namespace agoq
