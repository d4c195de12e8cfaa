// The fake device as tests see it.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>

#include "backend.h"
#include "guard.h"
#include "no_gil_ptr.h"
#include "support.h"

namespace fake {
namespace {

namespace py = pybind11;
using Unlocked = py::call_guard<py::gil_scoped_release>;

py::list taken_log() {
  py::list list;
  for (const auto& entry : Machine::get().take_log()) {
    list.append(py::make_tuple(entry.what, entry.stream, entry.number));
  }
  return list;
}

py::list taken_trace() {
  py::list list;
  for (const auto& span : Machine::get().take_trace()) {
    list.append(py::make_tuple(span.what, span.stream, span.begin, span.end));
  }
  return list;
}

int use_stream(int stream) {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
  return static_cast<int>(
      guard.exchangeStream(c10::Stream(c10::Stream::UNSAFE, guard.getDevice(), stream)).id());
}

}  // namespace

PYBIND11_MODULE(_fake_device, module) {
  py::module_::import("torch._C._distributed_c10d");
  py::class_<Graph, std::shared_ptr<Graph>>(module, "Graph");
  py::class_<Backend, c10d::Backend, agoq::NoGilPtr<Backend>>(module, "Backend")
      .def(py::init([](int rank, int size, const BackendPtr& gloo) {
        return agoq::NoGilPtr<Backend>(c10::make_intrusive<Backend>(rank, size, gloo));
      }))
      .def("linger",
           [](Backend& backend, int milliseconds) {
             backend.linger(std::chrono::milliseconds(milliseconds));
           })
      .def("has_open_bracket", &Backend::has_open_bracket)
      .def("break_down", &Backend::break_down, py::arg("throws") = false);
  module.def("support", [] { return py::capsule(&support()); });
  module.def("set_max_ranks", [](int ranks) { support().max_ranks = ranks; });
  module.def("fail_codec", [](bool fails) { set_codec_fails(fails); });
  module.def("fail_pinned", [](bool fails) { set_pinned_fails(fails); });
  module.def("take_log", &taken_log);
  module.def("hold", [](bool held) { Machine::get().hold(held); }, Unlocked());
  module.def("hold_before",
             [](int stream, const std::string& what) { Machine::get().hold_before(stream, what); });
  module.def("trace", [](bool traced) { Machine::get().trace(traced); });
  module.def("take_trace", &taken_trace);
  module.def("set_delays",
             [](std::uint32_t seed, int most) { Machine::get().set_delays(seed, most); });
  module.def("use_stream", &use_stream);
  module.def(
      "synchronize", [] { Machine::get().synchronize(Machine::get().record(current_stream())); },
      Unlocked());
  module.def("begin_capture", [](int stream) { Machine::get().begin_capture(stream); });
  module.def("end_capture", [](int stream) { return Machine::get().end_capture(stream); });
  module.def("replay", [](const std::shared_ptr<Graph>& graph, int stream) {
    Machine::get().replay(graph, stream);
  });
}

}  // namespace fake
