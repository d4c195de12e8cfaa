// The few torch operators that run on the fake device; all others run on the CPU, on copies.
#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/WrapDimMinimal.h>
#include <torch/library.h>

#include "guard.h"

namespace fake {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

/// The same memory as a tensor of the CPU, for work on a stream.
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, c10::GetAllocator(kType),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(kType),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  auto& machine = Machine::get();
  const int stream = current_stream();
  // Tensors of the CPU stay alive with the work; memory of the device is the allocator's business.
  machine.submit(stream, "copy", [from = on_host(from), to = on_host(to)] { to.copy_(from); });
  if (!non_blocking && (from.is_cpu() || to.is_cpu())) machine.synchronize(machine.record(stream));
  return to;
}

/// How the fallback brings the result of an operator that ran on the CPU back to the device.
at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  TORCH_CHECK(from.sizes() == to.sizes(), "fake: results have the size of where they go");
  return copy_from(from, to, false);
}

at::Tensor cat(const at::ITensorListRef& tensors, std::int64_t dim) {
  std::vector<at::Tensor> parts;
  std::vector<std::int64_t> sizes;
  for (const auto& tensor : tensors) {
    parts.push_back(on_host(tensor));
    if (sizes.empty()) {
      dim = c10::maybe_wrap_dim(dim, tensor.dim());
      sizes = tensor.sizes().vec();
    } else {
      sizes[static_cast<std::size_t>(dim)] += tensor.size(dim);
    }
  }
  auto whole = at::empty(sizes, parts[0].options().device(kType));
  Machine::get().submit(current_stream(), "cat", [parts, dim, to = on_host(whole)]() mutable {
    at::cat_out(to, parts, dim);
  });
  return whole;
}

at::Tensor mm(const at::Tensor& a, const at::Tensor& b) {
  auto product = at::empty({a.size(0), b.size(1)}, a.options());
  Machine::get().submit(
      current_stream(), "mm",
      [a = on_host(a), b = on_host(b), to = on_host(product)]() mutable { at::mm_out(to, a, b); });
  return product;
}

const at::Tensor& resize(const at::Tensor& self, c10::IntArrayRef size,
                         std::optional<at::MemoryFormat>) {
  TORCH_CHECK(self.numel() >= c10::multiply_integers(size), "fake: resize_ only shrinks");
  self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return self;
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  record_use(self.storage().data_ptr(), static_cast<int>(stream.id()));
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset,
                        c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

at::Tensor view(const at::Tensor& self, c10::IntArrayRef size) {
  return at::native::view(self, size);
}

at::Tensor as_strided(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride,
                      std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("cat", cat);
  library.impl("mm", mm);
  library.impl("resize_", resize);
  library.impl("record_stream", record_stream);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("view", view);
  library.impl("as_strided", as_strided);
  library.impl("_reshape_alias", reshape_alias);
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

}  // namespace
}  // namespace fake
