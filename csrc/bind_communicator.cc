// agoq_comm._C.Communicator: the core's communicator, on addresses, over threads of this process or
// over processes that share one of torch's stores. python/agoq_comm/communicator.py and mpi.py own
// the checks of what lies behind an address.
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "agoqcomm/communicator.h"
#include "agoqcomm/error.h"
#include "agoqcomm/inproc.h"
#include "bindings.h"
#include "handshake.h"
#include "no_gil_ptr.h"  // Without it pybind11 would not know torch's stores by their holder.
#include "options.h"
#include "py_names.h"
#include "py_stats.h"
#include "transports.h"

namespace agoq {
namespace {

using Address = std::uintptr_t;
using Timeout = std::optional<std::chrono::milliseconds>;

CallOptions call_options(const Timeout& timeout, float factor) {
  CallOptions call;
  call.timeout = timeout;
  call.factor = factor;
  return call;
}

template <typename T>
std::vector<T> pointers(const std::vector<Address>& addresses) {
  std::vector<T> result;
  for (Address address : addresses) result.push_back(reinterpret_cast<T>(address));
  return result;
}

void all_reduce(Communicator& self, Address in, Address out, std::int64_t count,
                const std::string& type, const std::string& op, const Timeout& timeout,
                float factor) {
  self.all_reduce(reinterpret_cast<const void*>(in), reinterpret_cast<void*>(out), count,
                  parse_name<DataType>(type), parse_name<ReduceOp>(op),
                  call_options(timeout, factor));
}

void reduce_scatter(Communicator& self, const std::vector<Address>& in,
                    const std::vector<std::int64_t>& counts, Address out, const std::string& type,
                    const std::string& op, const Timeout& timeout, float factor) {
  self.reduce_scatter(pointers<const void*>(in), counts, reinterpret_cast<void*>(out),
                      parse_name<DataType>(type), parse_name<ReduceOp>(op),
                      call_options(timeout, factor));
}

void all_gather(Communicator& self, Address in, const std::vector<Address>& out,
                const std::vector<std::int64_t>& counts, const std::string& type,
                const Timeout& timeout) {
  self.all_gather(reinterpret_cast<const void*>(in), pointers<void*>(out), counts,
                  parse_name<DataType>(type), call_options(timeout, 1.0f));
}

/// The node of each rank, where the caller knows better than the handshake.
using NodeOfRank = std::optional<std::vector<int>>;

std::optional<Topology> stated(const NodeOfRank& topology) {
  if (!topology) return std::nullopt;
  return Topology(*topology);
}

std::vector<std::unique_ptr<Communicator>> make_inproc_communicators(int size,
                                                                     const AgoqOptions& options,
                                                                     const NodeOfRank& topology) {
  options.validate();
  Options core = options.core;
  core.timeout = options.timeout;
  std::vector<std::unique_ptr<Communicator>> group;
  for (auto& transport : make_inproc_group(size)) {
    group.push_back(std::make_unique<Communicator>(std::move(transport), core, stated(topology)));
  }
  return group;
}

/// A group of processes without a process group of torch. Every rank calls it, with one store and
/// equal options; the timeout is the options'.
std::unique_ptr<Communicator> make_communicator(const c10::intrusive_ptr<c10d::Store>& store,
                                                int rank, int size, const AgoqOptions& options,
                                                const NodeOfRank& topology) {
  options.validate();
  if (carries_over_gloo(options.transport)) {
    throw Error(ErrorCode::kInvalidArgument,
                "agoq: transport '" + options.transport +
                    "' needs a process group of torch; without one use 'auto', 'tcp' or 'shm'.");
  }
  const auto part = [&](const char* name) {
    return c10::make_intrusive<c10d::PrefixStore>(name, store);
  };
  const Introductions ranks =
      handshake(*part("agoq/handshake"), rank, size, options, options.timeout);
  Options core = options.core;
  core.timeout = options.timeout;
  const TransportSite site{rank, size, part("agoq/mesh"), nullptr, options.timeout};
  return std::make_unique<Communicator>(
      make_transport(options.transport, site), core,
      stated(topology).value_or(Topology::from_names(ranks.nodes)));
}

}  // namespace

void bind_communicator(py::module_& module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;

  // Communicators are destroyed with the GIL held; that is safe because a transport's destructor
  // waits for no thread that needs it.
  py::class_<Communicator>(module, "Communicator")
      .def_property_readonly("rank", &Communicator::rank)
      .def_property_readonly("size", &Communicator::size)
      .def("all_reduce", &all_reduce, Unlocked())
      .def("reduce_scatter", &reduce_scatter, Unlocked())
      .def("all_gather", &all_gather, Unlocked())
      .def("stats", [](const Communicator& self) { return to_dict(self.stats()); })
      .def("reset_stats", &Communicator::reset_stats)
      .def("describe", &Communicator::describe)
      .def("abort", &Communicator::abort, Unlocked());

  module.def("make_inproc_communicators", &make_inproc_communicators, py::arg("size"),
             py::arg("options"), py::arg("topology"));
  module.def("make_communicator", &make_communicator, py::kw_only(), py::arg("store"),
             py::arg("rank"), py::arg("size"), py::arg("options"), py::arg("topology"), Unlocked());
}

}  // namespace agoq
