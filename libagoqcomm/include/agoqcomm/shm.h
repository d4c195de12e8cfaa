// The shm transport: ranks of one host share memory.
#pragma once

#include <memory>

#include "agoqcomm/export.h"
#include "agoqcomm/store.h"
#include "agoqcomm/transport.h"
#include "agoqcomm/transport_config.h"

namespace agoq {

/// Every rank owns one segment of about config.shared_bytes, which the others map. acquire() hands
/// out memory of the segment, and received() points into the sender's: such a message is never
/// copied. Caller-memory sends are copied through the segment, in pieces where they are large.
/// The segment has no name in any file system, so nothing outlives the last rank, however it ends.
///
/// Where any rank cannot share memory with all others (another host, another namespace, no memory),
/// every rank alike throws Error(kUnsupported) that names the rank and the reason; make_auto_
/// transport() turns to tcp instead. Other errors are those of make_tcp_transport().
AGOQ_API std::unique_ptr<Transport> make_shm_transport(Store& store, int rank, int size,
                                                       const TransportConfig& config = {});

}  // namespace agoq
