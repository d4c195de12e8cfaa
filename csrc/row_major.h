// A tensor's numbers row by row, as the core moves them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace agoq {

/// The tensor itself where it is laid out so, else a copy.
class RowMajor {
 public:
  explicit RowMajor(const at::Tensor& tensor) : tensor_(tensor), rows_(tensor.contiguous()) {}

  const at::Tensor& tensor() const { return rows_; }
  void* data() const { return rows_.data_ptr(); }
  void write_back() const {
    if (!rows_.is_same(tensor_)) tensor_.copy_(rows_);
  }

 private:
  at::Tensor tensor_;
  at::Tensor rows_;
};

/// A list of them, as the core takes it.
class RowMajorList {
 public:
  explicit RowMajorList(const std::vector<at::Tensor>& tensors)
      : rows_(tensors.begin(), tensors.end()) {}

  template <typename Pointer>
  std::vector<Pointer> pointers() const {
    std::vector<Pointer> all;
    for (const auto& rows : rows_) all.push_back(rows.data());
    return all;
  }
  std::vector<at::Tensor> tensors() const {
    std::vector<at::Tensor> all;
    for (const auto& rows : rows_) all.push_back(rows.tensor());
    return all;
  }
  void write_back() const {
    for (const auto& rows : rows_) rows.write_back();
  }

 private:
  std::vector<RowMajor> rows_;
};

}  // namespace agoq
