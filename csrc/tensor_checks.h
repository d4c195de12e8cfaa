// From torch's tensors and reductions to the core's words.
#pragma once

#include <string_view>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "agoqcomm/types.h"

namespace agoq {

/// kOther for types that the core only moves.
DataType data_type_of(const at::Tensor& tensor);
/// Elements, or bytes where data_type_of() is kOther.
std::int64_t count_of(const at::Tensor& tensor);
std::vector<std::int64_t> counts_of(const std::vector<at::Tensor>& tensors);
ReduceOp reduce_op_of(const c10d::ReduceOp& op);
/// Whether the host knows the factor of a PREMUL_SUM: it may also be in a tensor of a device. True
/// for any other op.
bool has_host_factor(const c10d::ReduceOp& op);
/// The factor of a PREMUL_SUM, 1 for any other op.
double factor_of(const c10d::ReduceOp& op);

/// Throws for CPU tensors of a type that nothing here can reduce.
void require_reducible(const at::Tensor& tensor, std::string_view operation);
/// A tensor for each rank, all of the type of `other`; throws ValueError and TypeError.
void require_list(const std::vector<at::Tensor>& list, const at::Tensor& other, int size,
                  std::string_view operation);
/// The same, and all with as many elements as `other`.
void require_equal_list(const std::vector<at::Tensor>& list, const at::Tensor& other, int size,
                        std::string_view operation);
/// One tensor where a list of exactly one belongs; throws ValueError.
at::Tensor& only(std::vector<at::Tensor>& tensors, const char* operation);
/// Each rank's part of a row-by-row tensor.
std::vector<at::Tensor> parts_of(const at::Tensor& whole, int size);
/// Lists of one tensor each.
std::vector<std::vector<at::Tensor>> in_lists(const std::vector<at::Tensor>& tensors);
std::vector<at::Tensor> flatten(const std::vector<std::vector<at::Tensor>>& lists);

}  // namespace agoq
