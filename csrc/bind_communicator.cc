// agoq_comm._C.Communicator: the core's communicator over inproc ranks, on addresses.
// python/agoq_comm/communicator.py owns the checks of what lies behind an address.
#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agoqcomm/communicator.h"
#include "agoqcomm/inproc.h"
#include "bindings.h"
#include "options.h"
#include "py_names.h"

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

std::vector<std::unique_ptr<Communicator>> make_inproc_communicators(int size,
                                                                     const AgoqOptions& options) {
  options.validate();
  Options core = options.core;
  core.timeout = options.timeout;
  std::vector<std::unique_ptr<Communicator>> group;
  for (auto& transport : make_inproc_group(size)) {
    group.push_back(std::make_unique<Communicator>(std::move(transport), core));
  }
  return group;
}

py::dict reasons_of(const OperationStats& stats) {
  py::dict reasons;
  for (int i = 0; i < kExactReasonCount; ++i) {
    if (stats.exact_by_reason[i] == 0) continue;
    const auto name = to_string(static_cast<ExactReason>(i));
    reasons[py::str(std::string(name))] = stats.exact_by_reason[i];
  }
  return reasons;
}

py::dict stats_of(const Communicator& self) {
  const Stats stats = self.stats();
  py::dict result;
  for (int i = 0; i < kOperationCount; ++i) {
    const OperationStats& one = stats[i];
    if (one.quantized_calls + one.exact_calls == 0) continue;
    const auto name = to_string(static_cast<Operation>(i));
    result[py::str(std::string(name))] = py::dict(
        py::arg("quantized_calls") = one.quantized_calls, py::arg("exact_calls") = one.exact_calls,
        py::arg("exact_by_reason") = reasons_of(one), py::arg("elements") = one.elements,
        py::arg("wire_bytes") = one.wire_bytes, py::arg("exact_bytes") = one.exact_bytes,
        py::arg("encode_seconds") = one.encode_seconds, py::arg("sum_seconds") = one.sum_seconds,
        py::arg("decode_seconds") = one.decode_seconds, py::arg("wait_seconds") = one.wait_seconds,
        py::arg("total_seconds") = one.total_seconds);
  }
  return result;
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
      .def("stats", &stats_of)
      .def("reset_stats", &Communicator::reset_stats)
      .def("describe", &Communicator::describe)
      .def("abort", &Communicator::abort, Unlocked());

  module.def("make_inproc_communicators", &make_inproc_communicators, py::arg("size"),
             py::arg("options"));
}

}  // namespace agoq
