// Send and receive go to the inner backend at once, on the caller's thread: they match by tag, not
// by order, and a receive's Work must be the inner one, which alone knows its source.
#include <utility>

#include "backend.h"
#include "tensor_checks.h"

namespace agoq {

WorkPtr AgoqBackend::send(TensorList& tensors, int destination, int tag) {
  const auto& tensor = only(tensors, "send");
  require_healthy();
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  communicator_->record_exact(Operation::kSend, ExactReason::kOperation, tensor.numel(), bytes, 0);
  return coalesced(inner(tensor.device().type())->send(tensors, destination, tag),
                   tensor.device().type());
}

WorkPtr AgoqBackend::recv(TensorList& tensors, int source, int tag) {
  const auto& tensor = only(tensors, "recv");
  require_healthy();
  communicator_->record_exact(Operation::kReceive, ExactReason::kOperation, tensor.numel(), 0, 0);
  return coalesced(inner(tensor.device().type())->recv(tensors, source, tag),
                   tensor.device().type());
}

WorkPtr AgoqBackend::recvAnysource(TensorList& tensors, int tag) {
  const auto& tensor = only(tensors, "recv from any source");
  require_healthy();
  communicator_->record_exact(Operation::kReceive, ExactReason::kOperation, tensor.numel(), 0, 0);
  return coalesced(inner(tensor.device().type())->recvAnysource(tensors, tag),
                   tensor.device().type());
}

}  // namespace agoq
