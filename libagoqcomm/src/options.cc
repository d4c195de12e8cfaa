#include "agoqcomm/options.h"

#include "agoqcomm/codec.h"
#include "agoqcomm/error.h"
#include "agoqcomm/version.h"

namespace agoq {
namespace {

std::string yes_or_no(bool value) { return value ? "yes" : "no"; }

[[noreturn]] void refuse(const std::string& field, const std::string& value,
                         const std::string& may_be) {
  throw Error(ErrorCode::kInvalidArgument,
              "Options::" + field + " is " + value + "; it must be " + may_be);
}

}  // namespace

std::string_view to_string(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::kAuto:
      return "auto";
    case Algorithm::kFlat:
      return "flat";
    case Algorithm::kTwoLevel:
      return "two_level";
  }
  return "";
}

void Options::validate() const {
  format.validate();
  if (min_numel < 0) {
    refuse("min_numel", std::to_string(min_numel), "0 (quantize every call) or more");
  }
  if (to_string(algorithm).empty()) {
    refuse("algorithm", std::to_string(static_cast<int>(algorithm)), "auto, flat or two_level");
  }
  if (segment_numel < 1) {
    refuse("segment_numel", std::to_string(segment_numel), "1 or more elements");
  }
  if (codec_threads < 0 || codec_threads > Codec::kMaxThreads) {
    refuse("codec_threads", std::to_string(codec_threads),
           "0 (automatic) to " + std::to_string(Codec::kMaxThreads));
  }
  if (timeout <= std::chrono::milliseconds::zero()) {
    refuse("timeout", std::to_string(timeout.count()) + " ms", "more than 0 ms");
  }
}

bool Options::quantizes(Operation operation) const noexcept {
  switch (operation) {
    case Operation::kAllReduce:
      return quantize_all_reduce;
    case Operation::kReduceScatter:
      return quantize_reduce_scatter;
    case Operation::kAllGather:
      return quantize_all_gather;
    default:
      return false;
  }
}

std::vector<FingerprintField> fingerprint(const Options& options) {
  return {
      {"version",
       std::to_string(AGOQCOMM_VERSION_MAJOR) + "." + std::to_string(AGOQCOMM_VERSION_MINOR)},
      {"format", options.format.name()},
      {"stochastic_rounding", yes_or_no(options.stochastic_rounding)},
      {"seed", std::to_string(options.seed)},
      {"min_numel", std::to_string(options.min_numel)},
      {"quantize_all_reduce", yes_or_no(options.quantize_all_reduce)},
      {"quantize_reduce_scatter", yes_or_no(options.quantize_reduce_scatter)},
      {"quantize_all_gather", yes_or_no(options.quantize_all_gather)},
      {"algorithm", std::string(to_string(options.algorithm))},
  };
}

std::string compare_fingerprints(int rank_a, const std::vector<FingerprintField>& a, int rank_b,
                                 const std::vector<FingerprintField>& b) {
  const auto name = [](int rank) { return "rank " + std::to_string(rank); };
  const auto value_in = [](const std::vector<FingerprintField>& fields, const std::string& wanted) {
    for (const FingerprintField& field : fields) {
      if (field.name == wanted) return field.value;
    }
    return std::string("absent");
  };
  const auto difference = [&](const std::string& field) {
    return "the ranks are configured differently: " + field + " is " + value_in(a, field) + " on " +
           name(rank_a) + " and " + value_in(b, field) + " on " + name(rank_b);
  };
  for (const FingerprintField& field : a) {
    if (value_in(b, field.name) != field.value) return difference(field.name);
  }
  // Another version may know fields that this one does not.
  for (const FingerprintField& field : b) {
    if (value_in(a, field.name) != field.value) return difference(field.name);
  }
  return "";
}

}  // namespace agoq
