// agoq_comm._C.Options and AgoqBackend, and the start-up handshake.
#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "agoqcomm/error.h"
#include "agoqcomm/version.h"
#include "backend.h"
#include "bindings.h"
#include "c10d_device_transport.h"
#include "c10d_store.h"
#include "errors.h"
#include "handshake.h"
#include "no_gil_ptr.h"
#include "py_stats.h"
#include "transports.h"

namespace agoq {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

bool is_stochastic(const std::string& rounding) {
  if (rounding != "nearest" && rounding != "stochastic") {
    throw Error(ErrorCode::kInvalidArgument,
                "agoq: rounding is '" + rounding + "', but must be 'nearest' or 'stochastic'.");
  }
  return rounding == "stochastic";
}

/// A field of Options: what Python reads and what it may set.
struct Field {
  const char* name;
  py::object (*get)(const AgoqOptions& options);
  void (*set)(AgoqOptions& options, const py::handle& value);
};

const Field kFields[] = {
    {"format",
     [](const AgoqOptions& o) -> py::object {
       return py::str(std::string(to_string(o.core.format.element)));
     },
     [](AgoqOptions& o, const py::handle& value) {
       o.core.format.element = parse_element_format(value.cast<std::string>());
     }},
    {"block", [](const AgoqOptions& o) -> py::object { return py::int_(o.core.format.block); },
     [](AgoqOptions& o, const py::handle& value) { o.core.format.block = value.cast<int>(); }},
    {"scale",
     [](const AgoqOptions& o) -> py::object {
       return py::str(std::string(to_string(o.core.format.scale)));
     },
     [](AgoqOptions& o, const py::handle& value) {
       o.core.format.scale = parse_scale_type(value.cast<std::string>());
     }},
    {"rounding",
     [](const AgoqOptions& o) -> py::object {
       return py::str(o.core.stochastic_rounding ? "stochastic" : "nearest");
     },
     [](AgoqOptions& o, const py::handle& value) {
       o.core.stochastic_rounding = is_stochastic(value.cast<std::string>());
     }},
    {"seed", [](const AgoqOptions& o) -> py::object { return py::int_(o.core.seed); },
     [](AgoqOptions& o, const py::handle& value) { o.core.seed = value.cast<std::uint64_t>(); }},
    {"min_numel", [](const AgoqOptions& o) -> py::object { return py::int_(o.core.min_numel); },
     [](AgoqOptions& o, const py::handle& value) {
       o.core.min_numel = value.cast<std::int64_t>();
     }},
    {"quantize",
     [](const AgoqOptions& o) -> py::object {
       return py::tuple(py::cast(quantized_names(o.core)));
     },
     [](AgoqOptions& o, const py::handle& value) {
       set_quantized_names(o.core, value.cast<std::vector<std::string>>());
     }},
    {"algorithm",
     [](const AgoqOptions& o) -> py::object {
       return py::str(std::string(to_string(o.core.algorithm)));
     },
     [](AgoqOptions& o, const py::handle& value) {
       o.core.algorithm = parse_algorithm(value.cast<std::string>());
     }},
    {"segment_numel",
     [](const AgoqOptions& o) -> py::object { return py::int_(o.core.segment_numel); },
     [](AgoqOptions& o, const py::handle& value) {
       o.core.segment_numel = value.cast<std::int64_t>();
     }},
    {"codec_threads",
     [](const AgoqOptions& o) -> py::object { return py::int_(o.core.codec_threads); },
     [](AgoqOptions& o, const py::handle& value) { o.core.codec_threads = value.cast<int>(); }},
    {"transport", [](const AgoqOptions& o) -> py::object { return py::str(o.transport); },
     [](AgoqOptions& o, const py::handle& value) { o.transport = value.cast<std::string>(); }},
    {"device_transport",
     [](const AgoqOptions& o) -> py::object { return py::str(o.device_transport); },
     [](AgoqOptions& o, const py::handle& value) {
       o.device_transport = value.cast<std::string>();
     }},
};

/// Leaves `options` as they were when the value is refused.
void set_field(AgoqOptions& options, const Field& field, const py::handle& value) {
  AgoqOptions changed = options;
  try {
    field.set(changed, value);
  } catch (const py::cast_error&) {
    throw py::type_error("agoq: " + std::string(field.name) + " cannot be " +
                         py::repr(value).cast<std::string>() + ": it has the wrong type or size.");
  }
  changed.validate();
  options.core = changed.core;
  options.transport = changed.transport;
  options.device_transport = changed.device_transport;
}

void set_fields(AgoqOptions& options, const py::dict& values) {
  for (const auto& [name, value] : values) {
    const auto text = name.cast<std::string>();
    const auto* const field = std::find_if(std::begin(kFields), std::end(kFields),
                                           [&](const Field& known) { return known.name == text; });
    if (field == std::end(kFields)) {
      throw py::type_error("agoq: Options has no field '" + text +
                           "'; see help(agoq_comm.Options).");
    }
    set_field(options, *field, value);
  }
}

/// The keyword arguments that make equal options.
py::dict field_values(const AgoqOptions& options) {
  py::dict result;
  for (const auto& field : kFields) result[field.name] = field.get(options);
  return result;
}

OptionsPtr make_options(const py::kwargs& values) {
  auto options = c10::make_intrusive<AgoqOptions>();
  py::module_::import("agoq_comm._environment").attr("apply")(options);
  set_fields(*options, values);
  return options;
}

OptionsPtr copy_of(const AgoqOptions& options) { return c10::make_intrusive<AgoqOptions>(options); }

/// CUDA, where it is served at all, and what `others` says: by type, capsules of DeviceSupport.
std::map<c10::DeviceType, DeviceSupport> device_support(
    const std::map<std::string, BackendPtr>& inner, const py::dict& others) {
  std::map<c10::DeviceType, DeviceSupport> all;
  if (inner.count("cuda") > 0) {
    if (const auto cuda = cuda_support()) all[c10::DeviceType::CUDA] = *cuda;
  }
  for (const auto& [name, capsule] : others) {
    all[c10::Device(name.cast<std::string>()).type()] =
        *capsule.cast<py::capsule>().get_pointer<DeviceSupport>();
  }
  return all;
}

NoGilPtr<AgoqBackend> make_backend(const StorePtr& store, int rank, int size,
                                   const OptionsPtr& options,
                                   const std::map<std::string, BackendPtr>& inner,
                                   const BackendPtr& gloo, const BackendPtr& device_gloo,
                                   std::vector<std::string> identities,
                                   const std::vector<std::string>& nodes, MakeBackend make,
                                   const py::dict& devices) {
  std::map<c10::DeviceType, DeviceSupport> support;
  try {
    support = device_support(inner, devices);
  } catch (const Error&) {
    std::rethrow_exception(to_torch_error(std::current_exception()));
  }
  py::gil_scoped_release without_gil;
  try {
    const auto host_transport = [=](const StorePtr& of_transport, const BackendPtr& its_gloo) {
      return make_transport(options->transport,
                            {rank, size, of_transport, its_gloo, options->timeout});
    };
    const auto device_store = c10::make_intrusive<c10d::PrefixStore>("device", store);
    Parts parts;
    parts.inner = inner;
    parts.transport = host_transport(store, gloo);
    parts.devices = std::move(support);
    for (const auto& [name, backend] : inner) {
      if (parts.devices.count(c10::Device(name).type()) == 0 || orders_streams(*backend)) continue;
      parts.device_transport = host_transport(device_store, device_gloo);
    }
    parts.peers = PeerProcesses(std::move(identities));
    parts.topology = Topology::from_names(nodes);
    parts.make_backend = std::move(make);
    return c10::make_intrusive<AgoqBackend>(rank, size, options, std::move(parts));
  } catch (...) {
    std::rethrow_exception(to_torch_error(std::current_exception()));
  }
}

using ProcessesAndNodes = std::pair<std::vector<std::string>, std::vector<std::string>>;

ProcessesAndNodes checked_handshake(const StorePtr& store, int rank, int size,
                                    const OptionsPtr& options) {
  py::gil_scoped_release without_gil;
  try {
    Introductions ranks = handshake(*store, rank, size, *options, options->timeout);
    return {std::move(ranks.processes), std::move(ranks.nodes)};
  } catch (...) {
    std::rethrow_exception(to_torch_error(std::current_exception()));
  }
}

void bind_options(py::module_& module) {
  py::class_<AgoqOptions, c10d::Backend::Options, OptionsPtr> type(module, "Options");
  type.def(py::init(&make_options))
      .def("clone", &copy_of)
      .def("__copy__", &copy_of)
      .def("__deepcopy__",
           [](const AgoqOptions& options, const py::dict&) { return copy_of(options); })
      .def("__eq__", &AgoqOptions::same_choices, py::is_operator())
      .def("__repr__", &AgoqOptions::repr)
      .def(py::pickle(&field_values, [](const py::dict& values) {
        auto options = c10::make_intrusive<AgoqOptions>();
        set_fields(*options, values);
        return options;
      }));
  for (const auto& field : kFields) {
    type.def_property(
        field.name, [&field](const AgoqOptions& options) { return field.get(options); },
        [&field](AgoqOptions& options, const py::object& value) {
          set_field(options, field, value);
        });
  }
}

}  // namespace

void bind_backend(py::module_& module) {
  bind_options(module);
  py::class_<AgoqBackend, c10d::Backend, NoGilPtr<AgoqBackend>>(module, "AgoqBackend")
      .def(py::init(&make_backend), py::kw_only(), py::arg("store"), py::arg("rank"),
           py::arg("size"), py::arg("options"), py::arg("inner"), py::arg("gloo"),
           py::arg("device_gloo"), py::arg("identities"), py::arg("nodes"), py::arg("make_backend"),
           py::arg("devices") = py::dict())
      .def_property_readonly("options", &AgoqBackend::options)
      .def("inner", [](const AgoqBackend& b,
                       const std::string& device) { return b.inner(c10::Device(device).type()); })
      .def("stats", [](const AgoqBackend& backend) { return to_dict(backend.stats()); })
      .def("reset_stats", &AgoqBackend::reset_stats)
      .def("describe", &AgoqBackend::describe);
  module.def("handshake", &checked_handshake, py::kw_only(), py::arg("store"), py::arg("rank"),
             py::arg("size"), py::arg("options"));
  module.def("carries_over_gloo", &carries_over_gloo, py::arg("transport"));
  module.attr("version") = version();
}

}  // namespace agoq
