// Memory in the manner of a caching allocator: what is freed may be used anew by its own stream at
// once, and by nobody sooner than the streams that record_use() named are done with it. What is
// freed is overwritten at that very point, so that a use after it shows in the numbers.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <cstring>
#include <set>

#include "guard.h"

namespace fake {
namespace {

struct Block {
  void* data = nullptr;
  std::size_t bytes = 0;
  int stream = 0;
  std::set<int> uses;
};

std::mutex blocks_mutex;

void release(void* context) {
  auto* const block = static_cast<Block*>(context);
  auto& machine = Machine::get();
  machine.note({"free", block->stream, static_cast<std::int64_t>(block->bytes)});
  std::vector<MarkPtr> uses;
  for (const int stream : block->uses) {
    if (stream != block->stream) uses.push_back(machine.record(stream));
  }
  machine.submit(block->stream, "reuse", [block, uses] {
    for (const auto& use : uses) Machine::get().await(use);
    std::memset(block->data, 0xff, block->bytes);
    c10::free_cpu(block->data);
    delete block;
  });
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device(c10::DeviceType::PrivateUse1, 0);
    if (bytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, device};
    const int stream = current_stream();
    TORCH_CHECK(!Machine::get().is_capturing(stream), "fake: an allocation while capturing");
    Machine::get().note({"allocate", stream, static_cast<std::int64_t>(bytes)});
    auto* const block = new Block{c10::alloc_cpu(bytes), bytes, stream, {}};
    return {block->data, block, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

Allocator allocator;
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &allocator);

/// Host memory is all alike here; none is pinned but what is asked for so.
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
};

Hooks hooks;
const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();

}  // namespace

void record_use(const c10::DataPtr& data, int stream) {
  if (data.get_deleter() != &release) return;
  Machine::get().note({"record_stream", stream, reinterpret_cast<std::int64_t>(data.get())});
  std::lock_guard lock(blocks_mutex);
  static_cast<Block*>(data.get_context())->uses.insert(stream);
}

}  // namespace fake
