// What pg_options carries: the core's options and the choices that only the torch side makes.
#pragma once

#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "agoqcomm/options.h"

namespace agoq {

/// Python's agoq_comm.Options. torch copies it for every group, so a group never sees another
/// group's changes. Not named Options: inside a c10d::Backend that name means torch's own struct.
struct AgoqOptions : c10d::Backend::Options {
  AgoqOptions() : c10d::Backend::Options("agoq") {}

  agoq::Options core;
  std::string transport = "auto";
  std::string device_transport = "auto";

  /// Throws Error(kInvalidArgument) that names the field and what it may be.
  void validate() const;
  /// The core's fingerprint and the fields of this struct that must agree between ranks.
  std::vector<FingerprintField> all_fields() const;
  /// "Options(format='int8', block=128, ...)", which Python reads back.
  std::string repr() const;
  /// Equal in everything a user chooses; torch's own fields (timeout, group name) do not count.
  bool same_choices(const AgoqOptions& other) const;
};

/// Inverse of to_string(); throws Error(kInvalidArgument) that lists the names there are.
agoq::Algorithm parse_algorithm(const std::string& name);

/// The names that Options(quantize=...) knows.
std::vector<std::string> quantized_names(const agoq::Options& options);
void set_quantized_names(agoq::Options& options, const std::vector<std::string>& names);

}  // namespace agoq
