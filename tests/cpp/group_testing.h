// Groups of ranks as threads, and transports that are slow on purpose.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agoqcomm/communicator.h"
#include "agoqcomm/error.h"
#include "agoqcomm/inproc.h"

namespace agoq::testing {

/// How one rank's thread ended.
struct Outcome {
  std::optional<ErrorCode> error;
  std::string words;
  std::optional<int> peer;
};

/// What the error was that `body` throws; none fails no test by itself.
inline Outcome outcome_of(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const Error& error) {
    return {error.code(), error.what(), error.peer()};
  }
}

/// Hides completions for a while, so that they are seen late and in another order than they came.
/// Rank `late_rank` also sleeps before each message it sends.
class SlowTransport : public Transport {
 public:
  SlowTransport(std::unique_ptr<Transport> inner, int late_rank, unsigned seed)
      : inner_(std::move(inner)),
        late_(inner_->rank() == late_rank),
        random_(seed * 31u + static_cast<unsigned>(inner_->rank())) {}

  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void begin_call(const Label& label) override { inner_->begin_call(label); }
  SendBuffer acquire(std::size_t bytes) override { return inner_->acquire(bytes); }
  void post_send(SendBuffer buffer, std::span<const int> peers, Tag tag) override {
    be_late();
    inner_->post_send(buffer, peers, tag);
  }
  Ticket post_send(const void* data, std::size_t bytes, std::span<const int> peers,
                   Tag tag) override {
    be_late();
    return inner_->post_send(data, bytes, peers, tag);
  }
  Ticket post_receive(int peer, Tag tag, std::size_t bytes) override {
    return hide(inner_->post_receive(peer, tag, bytes));
  }
  Ticket post_receive(int peer, Tag tag, void* into, std::size_t bytes) override {
    return hide(inner_->post_receive(peer, tag, into, bytes));
  }
  bool test(Ticket ticket) override {
    const auto hidden = hidden_.find(ticket);
    if (hidden == hidden_.end()) return inner_->test(ticket);
    if (--hidden->second <= 0) hidden_.erase(hidden);
    has_hidden_ = true;
    return false;
  }
  const std::byte* received(Ticket ticket) override { return inner_->received(ticket); }
  void release(Ticket ticket) override { inner_->release(ticket); }
  bool sends_complete() override { return inner_->sends_complete(); }
  void wait(Clock::time_point deadline) override {
    // What was hidden may have come: the inner transport has no more news of it.
    if (std::exchange(has_hidden_, false)) {
      std::this_thread::yield();
    } else {
      inner_->wait(deadline);
    }
  }
  void abort(const std::string& reason) noexcept override { inner_->abort(reason); }
  int send_buffer_limit(std::size_t bytes) const override {
    return inner_->send_buffer_limit(bytes);
  }

 private:
  Ticket hide(Ticket ticket) {
    hidden_[ticket] = static_cast<int>(random_() % 6);
    return ticket;
  }
  void be_late() const {
    if (late_) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }

  std::unique_ptr<Transport> inner_;
  bool late_;
  std::mt19937 random_;
  bool has_hidden_ = false;                 // Since the last wait().
  std::unordered_map<Ticket, int> hidden_;  // How many more tests say "not yet".
};

inline std::vector<std::unique_ptr<Transport>> make_slow_group(int size, int late_rank,
                                                               unsigned seed) {
  std::vector<std::unique_ptr<Transport>> transports = make_inproc_group(size);
  for (std::unique_ptr<Transport>& transport : transports) {
    transport = std::make_unique<SlowTransport>(std::move(transport), late_rank, seed);
  }
  return transports;
}

/// Runs body(communicator) on a thread a rank. A communicator lives until all bodies have ended.
template <typename Body>
std::vector<Outcome> run_ranks(std::vector<std::unique_ptr<Transport>> transports,
                               const Options& options, Body body,
                               const std::optional<Topology>& topology = {}) {
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (std::unique_ptr<Transport>& transport : transports) {
    ranks.push_back(std::make_unique<Communicator>(std::move(transport), options, topology));
  }
  std::vector<Outcome> outcomes(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] { outcomes[rank] = outcome_of([&] { body(*ranks[rank]); }); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

template <typename Body>
std::vector<Outcome> run_ranks(int size, const Options& options, Body body) {
  return run_ranks(make_inproc_group(size), options, body);
}

inline void expect_success(const std::vector<Outcome>& outcomes) {
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_FALSE(outcomes[rank].error) << "rank " << rank << ": " << outcomes[rank].words;
  }
}

/// Options under which every call of a quantized kind is quantized, whatever its count.
inline Options quantize_all() {
  Options options;
  options.min_numel = 0;
  options.quantize_all_gather = true;
  options.timeout = std::chrono::seconds(60);
  return options;
}

inline const std::vector<int> kSizes = {1, 2, 3, 4, 5, 8};
inline const std::vector<std::int64_t> kCounts = {0,   1,    2,    31,   127,  128,
                                                  129, 1000, 4095, 4096, 4097, 100007};

}  // namespace agoq::testing
