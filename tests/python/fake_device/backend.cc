#include "backend.h"

#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>
#include <thread>
#include <utility>

#include "guard.h"

namespace fake {
namespace {

class StreamWork final : public c10d::Work {
 public:
  explicit StreamWork(MarkPtr done) : done_(std::move(done)) {}
  bool isCompleted() override { return Machine::get().query(done_); }
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    return true;
  }
  void synchronize() override { Machine::get().block(current_stream(), done_); }

 private:
  const MarkPtr done_;
};

/// The same memory for Gloo. It holds the tensor, as NCCL's work holds those of a call.
at::Tensor on_host(const at::Tensor& tensor) {
  return at::from_blob(
      tensor.data_ptr(), tensor.sizes(), [tensor](void*) {}, tensor.options().device(at::kCPU));
}

int own_stream() {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
  return static_cast<int>(guard.getStreamFromGlobalPool(guard.getDevice(), false).id());
}

}  // namespace

Backend::Backend(int rank, int size, BackendPtr gloo)
    : c10d::Backend(rank, size), gloo_(std::move(gloo)), stream_(own_stream()) {}

WorkPtr Backend::put(const std::string& what, Start start) {
  auto& machine = Machine::get();
  machine.block(stream_, machine.record(current_stream()));
  auto self = c10::intrusive_ptr<Backend>::unsafe_reclaim_from_nonowning(this);
  machine.submit(stream_, what, [self, start = std::move(start)] {
    const auto open = std::make_shared<std::atomic<int>>(0);
    for (const auto& work : start()) {
      // Gloo completes a receive only for who waits for it, and who waits cannot be interrupted:
      // abort() leaves these threads behind.
      ++*open;
      std::thread([work, open] {
        try {
          work->wait();
        } catch (const std::exception&) {
          // The peer is gone; NCCL would say so by getError(), in its own time.
        }
        --*open;
      }).detach();
    }
    while (*open > 0 && !self->aborted_) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  return c10::make_intrusive<StreamWork>(machine.record(stream_));
}

WorkPtr Backend::put_or_collect(const std::string& what, Start start) {
  if (!coalescing_) return put(what, std::move(start));
  if (bracket_of_ != std::this_thread::get_id()) Machine::get().note({"intrusion", stream_});
  collected_.push_back(std::move(start));
  return nullptr;
}

void Backend::startCoalescing() {
  bracket_of_ = std::this_thread::get_id();
  coalescing_ = true;
}

WorkPtr Backend::endCoalescing() {
  std::this_thread::sleep_for(linger_.load());
  coalescing_ = false;
  if (collected_.empty()) return nullptr;
  return put("exchange", [all = std::exchange(collected_, {})] {
    std::vector<WorkPtr> works;
    for (const auto& start : all) {
      for (auto& work : start()) works.push_back(std::move(work));
    }
    return works;
  });
}

WorkPtr Backend::send(TensorList& tensors, int peer, int tag) {
  return put_or_collect(
      "send", [gloo = gloo_, list = TensorList{on_host(tensors[0])}, peer, tag]() mutable {
        return std::vector<WorkPtr>{gloo->send(list, peer, tag)};
      });
}

WorkPtr Backend::recv(TensorList& tensors, int peer, int tag) {
  return put_or_collect(
      "recv", [gloo = gloo_, list = TensorList{on_host(tensors[0])}, peer, tag]() mutable {
        return std::vector<WorkPtr>{gloo->recv(list, peer, tag)};
      });
}

WorkPtr Backend::allreduce(TensorList& tensors, const c10d::AllreduceOptions& options) {
  return put_or_collect("allreduce",
                        [gloo = gloo_, list = TensorList{on_host(tensors[0])}, options]() mutable {
                          return std::vector<WorkPtr>{gloo->allreduce(list, options)};
                        });
}

WorkPtr Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                      const c10d::ReduceScatterOptions& options) {
  return put_or_collect("reduce_scatter", [gloo = gloo_, to = on_host(output),
                                           from = on_host(input), options]() mutable {
    return std::vector<WorkPtr>{gloo->_reduce_scatter_base(to, from, options)};
  });
}

WorkPtr Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                 const c10d::AllgatherOptions& options) {
  return put_or_collect(
      "allgather", [gloo = gloo_, to = on_host(output), from = on_host(input), options]() mutable {
        return std::vector<WorkPtr>{gloo->_allgather_base(to, from, options)};
      });
}

WorkPtr Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                               std::vector<std::int64_t>& out_splits,
                               std::vector<std::int64_t>& in_splits,
                               const c10d::AllToAllOptions& options) {
  return put_or_collect("alltoall", [gloo = gloo_, to = on_host(output), from = on_host(input),
                                     out_splits, in_splits, options]() mutable {
    return std::vector<WorkPtr>{gloo->alltoall_base(to, from, out_splits, in_splits, options)};
  });
}

}  // namespace fake
