// The collectives of rows, as methods of agoq_comm._C.AgoqBackend. They take tensors, where the
// other methods are those that torch binds itself.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <vector>

#include "agoqcomm/row_codec.h"
#include "backend.h"
#include "bindings.h"
#include "row_ops.h"

namespace agoq {
namespace {

using Rows = std::vector<std::int64_t>;
using OptionalTensor = std::optional<at::Tensor>;

RowTensors row_tensors(const OptionalTensor& residual, const OptionalTensor& weight,
                       std::optional<double> epsilon, const OptionalTensor& normed,
                       const OptionalTensor& encoded, const Rounding& rounding) {
  RowTensors tensors;
  tensors.residual = residual.value_or(at::Tensor());
  tensors.weight = weight.value_or(at::Tensor());
  tensors.norm = epsilon.has_value();
  tensors.epsilon = epsilon.value_or(0);
  tensors.normed = normed.value_or(at::Tensor());
  tensors.encoded = encoded.value_or(at::Tensor());
  tensors.rounding = rounding;
  return tensors;
}

WorkPtr reduce_scatter_rows(AgoqBackend& self, const at::Tensor& output, const at::Tensor& input,
                            const Rows& rows, std::optional<bool> quantize,
                            const RowTensors& epilogue, bool async) {
  return self.reduce_scatter_rows(output, input, rows, epilogue, quantize, async);
}

WorkPtr all_gather_rows(AgoqBackend& self, const at::Tensor& output, const at::Tensor& input,
                        const Rows& rows, std::optional<bool> quantize, bool async) {
  return self.all_gather_rows(output, input, rows, quantize, async);
}

void finish_rows(AgoqBackend& self, const at::Tensor& values, const OptionalTensor& output,
                 const RowTensors& epilogue) {
  self.finish_rows(values, output.value_or(at::Tensor()), epilogue);
}

/// The class is bound elsewhere: its holder and torch's casters of tensors do not meet in one file.
template <typename Function, typename... Arguments>
void add_method(const py::object& type, const char* name, const Function& function,
                const Arguments&... arguments) {
  type.attr(name) = py::cpp_function(function, py::name(name), py::is_method(type),
                                     py::call_guard<py::gil_scoped_release>(), arguments...);
}

}  // namespace

void bind_rows(py::module_& module) {
  py::class_<RowTensors>(module, "RowEpilogue")
      .def(py::init(&row_tensors), py::kw_only(), py::arg("residual") = py::none(),
           py::arg("weight") = py::none(), py::arg("epsilon") = py::none(),
           py::arg("normed") = py::none(), py::arg("encoded") = py::none(),
           py::arg("rounding") = Rounding());
  const py::object backend = module.attr("AgoqBackend");
  add_method(backend, "serves_rows", &AgoqBackend::serves_rows);
  const auto output = py::arg("output");
  const auto input = py::arg("input");
  const auto rows = py::arg("rows");
  const auto quantize = py::arg("quantize");
  const auto async_op = py::arg("async_op") = true;
  add_method(backend, "reduce_scatter_rows", &reduce_scatter_rows, output, input, rows, quantize,
             py::arg("epilogue"), async_op);
  add_method(backend, "all_gather_rows", &all_gather_rows, output, input, rows, quantize, async_op);
  add_method(backend, "all_gather_encoded_rows", &AgoqBackend::all_gather_encoded_rows, output,
             py::arg("encoded"), rows, async_op);
  add_method(backend, "finish_rows", &finish_rows);
}

}  // namespace agoq
