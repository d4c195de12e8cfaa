#include "call_arguments.h"

#include "agoqcomm/error.h"

namespace agoq {
namespace {

[[noreturn]] void refuse(Operation operation, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, std::string(to_string(operation)) + ": " + what);
}

}  // namespace

void check_count(Operation operation, std::int64_t count) {
  if (count < 0) {
    refuse(operation, "the count is " + std::to_string(count) + "; it must be 0 or more");
  }
}

void check_memory(Operation operation, const void* memory, std::int64_t count, const char* name) {
  if (count > 0 && memory == nullptr) {
    refuse(operation, std::string(name) + " is null, and " + std::to_string(count) +
                          " elements are to be in it");
  }
}

void check_root(Operation operation, int root, int size) {
  if (root < 0 || root >= size) {
    refuse(operation, "the root is " + std::to_string(root) + "; a group of " +
                          std::to_string(size) + " ranks has ranks 0 to " +
                          std::to_string(size - 1));
  }
}

void check_peer(Operation operation, int peer, int rank, int size) {
  if (peer < 0 || peer >= size || peer == rank) {
    refuse(operation, "the peer is " + std::to_string(peer) + "; those of rank " +
                          std::to_string(rank) + " are the other ranks below " +
                          std::to_string(size));
  }
}

void check_chunks(Operation operation, std::span<const void* const> chunks,
                  std::span<const std::int64_t> counts, int size, const char* name) {
  if (std::ssize(chunks) != size || std::ssize(counts) != size) {
    refuse(operation, "there are " + std::to_string(chunks.size()) + " buffers in `" + name +
                          "` and " + std::to_string(counts.size()) + " counts; a group of " +
                          std::to_string(size) + " ranks needs one of each a rank");
  }
  for (int rank = 0; rank < size; ++rank) {
    check_count(operation, counts[rank]);
    check_memory(operation, chunks[rank], counts[rank], name);
  }
}

void check_counts(Operation operation, std::span<const std::int64_t> counts, int size) {
  if (std::ssize(counts) != size) {
    refuse(operation, "there are " + std::to_string(counts.size()) + " counts; a group of " +
                          std::to_string(size) + " ranks needs one a rank");
  }
  for (const std::int64_t count : counts) check_count(operation, count);
}

void check_own_counts(Operation operation, std::int64_t sent, std::int64_t received) {
  if (sent != received) {
    refuse(operation, "this rank sends itself " + std::to_string(sent) + " elements and receives " +
                          std::to_string(received) + " from itself; they must be equal");
  }
}

std::int64_t total(std::span<const std::int64_t> counts) {
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) sum += count;
  return sum;
}

}  // namespace agoq
