#include "options.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include "agoqcomm/cuda_codec.h"
#include "agoqcomm/error.h"
#include "transports.h"

namespace agoq {
namespace {

constexpr std::array kAlgorithms{agoq::Algorithm::kAuto, agoq::Algorithm::kFlat,
                                 agoq::Algorithm::kTwoLevel};

/// "auto" is NCCL where torch has it.
constexpr std::array<std::string_view, 2> kDeviceTransports{"auto", "host"};

struct QuantizedName {
  std::string_view name;
  bool agoq::Options::* field;
};
constexpr std::array<QuantizedName, 3> kQuantizedNames{{
    {"all_reduce", &agoq::Options::quantize_all_reduce},
    {"reduce_scatter", &agoq::Options::quantize_reduce_scatter},
    {"all_gather", &agoq::Options::quantize_all_gather},
}};

template <typename Names>
std::string listed(const Names& names) {
  std::string text;
  for (const auto& name : names) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

template <typename Names>
void require_known(std::string_view field, const std::string& value, const Names& names) {
  if (std::find(names.begin(), names.end(), value) != names.end()) return;
  throw Error(ErrorCode::kInvalidArgument, "agoq: " + std::string(field) + " is '" + value +
                                               "', but must be one of: " + listed(names) + ".");
}

}  // namespace

void AgoqOptions::validate() const {
  core.validate();
  require_known("transport", transport, transport_names());
  require_known("device_transport", device_transport, kDeviceTransports);
}

std::vector<FingerprintField> AgoqOptions::all_fields() const {
  auto fields = fingerprint(core);
  // No result depends on it, but ranks must cut a call alike, and start-up is the time to say so.
  fields.push_back({"segment_numel", std::to_string(core.segment_numel)});
  fields.push_back({"transport", transport});
  fields.push_back({"device_transport", device_transport});
  // A rank without them would send exactly what the others send quantized.
  fields.push_back({"CUDA kernels", CudaCodec::is_built() ? "built" : "not built"});
  return fields;
}

std::string AgoqOptions::repr() const {
  std::ostringstream out;
  out << "Options(format='" << to_string(core.format.element) << "', block=" << core.format.block
      << ", scale='" << to_string(core.format.scale) << "', rounding='"
      << (core.stochastic_rounding ? "stochastic" : "nearest") << "', seed=" << core.seed
      << ", min_numel=" << core.min_numel << ", quantize=(";
  const char* separator = "";
  for (const auto& name : quantized_names(core)) {
    out << separator << "'" << name << "'";
    separator = ", ";
  }
  // A tuple of one has a comma at its end.
  out << (quantized_names(core).size() == 1 ? ",)" : ")") << ", algorithm='"
      << to_string(core.algorithm) << "', segment_numel=" << core.segment_numel
      << ", codec_threads=" << core.codec_threads << ", transport='" << transport
      << "', device_transport='" << device_transport << "')";
  return out.str();
}

agoq::Algorithm parse_algorithm(const std::string& name) {
  std::array<std::string_view, kAlgorithms.size()> names;
  std::transform(kAlgorithms.begin(), kAlgorithms.end(), names.begin(),
                 [](agoq::Algorithm algorithm) { return to_string(algorithm); });
  require_known("algorithm", name, names);
  return kAlgorithms[std::find(names.begin(), names.end(), name) - names.begin()];
}

bool AgoqOptions::same_choices(const AgoqOptions& other) const { return repr() == other.repr(); }

std::vector<std::string> quantized_names(const agoq::Options& options) {
  std::vector<std::string> names;
  for (const auto& row : kQuantizedNames) {
    if (options.*row.field) names.emplace_back(row.name);
  }
  return names;
}

void set_quantized_names(agoq::Options& options, const std::vector<std::string>& names) {
  for (const auto& row : kQuantizedNames) options.*row.field = false;
  for (const auto& name : names) {
    const auto row = std::find_if(kQuantizedNames.begin(), kQuantizedNames.end(),
                                  [&](const QuantizedName& known) { return known.name == name; });
    if (row == kQuantizedNames.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "agoq: quantize names '" + name +
                      "', but may hold only: all_reduce, reduce_scatter, all_gather.");
    }
    options.*row->field = true;
  }
}

}  // namespace agoq
