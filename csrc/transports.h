// Which transport carries a group's bytes. A new one is a row of the table in transports.cc.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "agoqcomm/transport.h"

namespace agoq {

/// What a transport can be made from.
struct TransportSite {
  int rank;
  int size;
  /// Of this group alone.
  c10::intrusive_ptr<c10d::Store> store;
  /// A Gloo that nothing else uses: the user's messages and ours must never match. Null unless
  /// the transport is "gloo".
  c10::intrusive_ptr<c10d::Backend> gloo;
  std::chrono::milliseconds timeout;
};

/// All there are; the first is the default.
std::vector<std::string> transport_names();
/// Whether the transport needs TransportSite::gloo.
bool carries_over_gloo(const std::string& name);
/// `name` is one of transport_names().
std::unique_ptr<Transport> make_transport(const std::string& name, const TransportSite& site);

}  // namespace agoq
