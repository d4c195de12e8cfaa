#include "transports.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "agoqcomm/error.h"
#include "c10d_transport.h"

namespace agoq {
namespace {

struct Row {
  std::string_view name;
  std::unique_ptr<Transport> (*make)(const TransportSite& site);
};

std::unique_ptr<Transport> make_gloo(const TransportSite& site) {
  return std::make_unique<C10dTransport>(site.gloo);
}

/// Best first: "auto" takes the first.
constexpr std::array<Row, 1> kRows{{
    {"gloo", make_gloo},
}};

}  // namespace

std::vector<std::string> transport_names() {
  std::vector<std::string> names{"auto"};
  for (const auto& row : kRows) names.emplace_back(row.name);
  return names;
}

bool carries_over_gloo(const std::string& name) {
  return name == "gloo" || (name == "auto" && kRows.front().name == "gloo");
}

std::unique_ptr<Transport> make_transport(const std::string& name, const TransportSite& site) {
  if (name == "auto") return kRows.front().make(site);
  const auto row = std::find_if(kRows.begin(), kRows.end(),
                                [&](const Row& candidate) { return candidate.name == name; });
  if (row == kRows.end()) {
    throw Error(ErrorCode::kInvalidArgument, "agoq: there is no transport '" + name + "'.");
  }
  return row->make(site);
}

}  // namespace agoq
