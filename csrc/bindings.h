// What each binding file adds to the extension module; module.cc calls them all.
#pragma once

#include <pybind11/pybind11.h>

namespace agoq {

namespace py = pybind11;

void bind_codec(py::module_& module);
void bind_communicator(py::module_& module);
void bind_backend(py::module_& module);
/// After bind_codec() and bind_backend().
void bind_rows(py::module_& module);

}  // namespace agoq
