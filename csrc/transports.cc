#include "transports.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "agoqcomm/auto.h"
#include "agoqcomm/error.h"
#include "agoqcomm/shm.h"
#include "agoqcomm/tcp.h"
#include "c10d_store.h"
#include "c10d_transport.h"

namespace agoq {
namespace {

struct Row {
  std::string_view name;
  std::unique_ptr<Transport> (*make)(const TransportSite& site);
};

using MakeMesh = std::unique_ptr<Transport> (*)(Store& store, int rank, int size,
                                                const TransportConfig& config);

template <MakeMesh make>
std::unique_ptr<Transport> make_mesh(const TransportSite& site) {
  C10dStore store(site.store);
  TransportConfig config;
  config.timeout = site.timeout;
  return make(store, site.rank, site.size, config);
}

std::unique_ptr<Transport> make_gloo(const TransportSite& site) {
  return std::make_unique<C10dTransport>(site.gloo);
}

constexpr std::array<Row, 4> kRows{{
    {"auto", make_mesh<make_auto_transport>},
    {"tcp", make_mesh<make_tcp_transport>},
    {"shm", make_mesh<make_shm_transport>},
    {"gloo", make_gloo},
}};

}  // namespace

std::vector<std::string> transport_names() {
  std::vector<std::string> names;
  for (const auto& row : kRows) names.emplace_back(row.name);
  return names;
}

bool carries_over_gloo(const std::string& name) { return name == "gloo"; }

std::unique_ptr<Transport> make_transport(const std::string& name, const TransportSite& site) {
  const auto row = std::find_if(kRows.begin(), kRows.end(),
                                [&](const Row& candidate) { return candidate.name == name; });
  if (row == kRows.end()) {
    throw Error(ErrorCode::kInvalidArgument, "agoq: there is no transport '" + name + "'.");
  }
  return row->make(site);
}

}  // namespace agoq
