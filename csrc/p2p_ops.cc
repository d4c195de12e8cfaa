// Send and receive go to the inner backend at once, on the caller's thread: they match by tag, not
// by order, so they need no turn among the collectives.
#include <string>
#include <utility>

#include "backend.h"
#include "tensor_checks.h"

namespace agoq {

using c10d::OpType;

WorkPtr AgoqBackend::peer_work(Operation operation, OpType type, const char* title,
                               const TensorList& tensors, const std::string& what,
                               const Issue& issue) {
  const auto& tensor = tensors.at(0);
  const auto device = tensor.device().type();
  require_healthy();
  const auto sent = operation == Operation::kSend ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
  communicator_->record_exact(operation, ExactReason::kOperation, tensor.numel(), sent, 0);
  // NCCL's work orders streams, and its coalesced calls return none.
  if (device != at::kCPU) {
    return coalesced(issue_on_device(*inner(device), issue), device, tensors);
  }
  auto work = issue(*inner(device));
  if (!work) return work;
  return coalesced(
      c10::make_intrusive<PeerWork>(rank_, type, title, tensors, what, std::move(work)), device,
      tensors);
}

WorkPtr AgoqBackend::send(TensorList& tensors, int destination, int tag) {
  only(tensors, "send");
  return peer_work(Operation::kSend, OpType::SEND, "agoq:send", tensors,
                   "send to rank " + std::to_string(destination),
                   [&](c10d::Backend& backend) { return backend.send(tensors, destination, tag); });
}

WorkPtr AgoqBackend::recv(TensorList& tensors, int source, int tag) {
  only(tensors, "recv");
  return peer_work(Operation::kReceive, OpType::RECV, "agoq:recv", tensors,
                   "receive from rank " + std::to_string(source),
                   [&](c10d::Backend& backend) { return backend.recv(tensors, source, tag); });
}

WorkPtr AgoqBackend::recvAnysource(TensorList& tensors, int tag) {
  only(tensors, "recv from any source");
  return peer_work(Operation::kReceive, OpType::RECVANYSOURCE, "agoq:recvAnySource", tensors,
                   "receive from any rank",
                   [&](c10d::Backend& backend) { return backend.recvAnysource(tensors, tag); });
}

}  // namespace agoq
