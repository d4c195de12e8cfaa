// The extension module agoq_comm._C.
#include <pybind11/pybind11.h>

#include <exception>

#include "agoqcomm/error.h"
#include "bindings.h"

namespace {

/// kInvalidArgument becomes ValueError, kUnsupported NotImplementedError, the rest RuntimeError.
void translate(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const agoq::Error& e) {
    PyObject* type = PyExc_RuntimeError;
    if (e.code() == agoq::ErrorCode::kInvalidArgument) type = PyExc_ValueError;
    if (e.code() == agoq::ErrorCode::kUnsupported) type = PyExc_NotImplementedError;
    PyErr_SetString(type, e.what());
  }
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  // The base classes of ours must be known to pybind11 first.
  pybind11::module_::import("torch._C._distributed_c10d");
  pybind11::register_local_exception_translator(translate);
  module.attr("torch_version") = AGOQ_TORCH_VERSION;
  agoq::bind_codec(module);
  agoq::bind_communicator(module);
  agoq::bind_backend(module);
  agoq::bind_rows(module);
}
