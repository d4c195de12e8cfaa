#include "collective/call_label.h"

#include <cstring>

namespace agoq {
namespace {

// Walks the label's bytes in one order for packing and for unpacking.
template <typename Visit>
void visit_fields(CallLabel& label, Visit&& visit) {
  visit(label.call);
  visit(label.operation);
  visit(label.type);
  visit(label.reduce_op);
  auto path = static_cast<std::uint8_t>(label.quantized | label.two_level << 1);
  visit(path);
  label.quantized = (path & 1) != 0;
  label.two_level = (path & 2) != 0;
  visit(label.root);
  visit(label.count);
  visit(label.factor);
  visit(label.format.element);
  visit(label.format.scale);
  auto block = static_cast<std::uint16_t>(label.format.block);
  visit(block);
  label.format.block = block;
  visit(label.segment_numel);
  visit(label.counts_digest);
}

std::string name(Operation operation) { return std::string(to_string(operation)); }
std::string name(DataType type) { return std::string(to_string(type)); }

std::string path_name(const CallLabel& label) {
  const std::string path = label.quantized ? "quantized as " + label.format.name() : "exact";
  return path + (label.two_level ? " in two levels" : "");
}

}  // namespace

Label CallLabel::pack() const {
  Label bytes{};
  std::size_t at = 0;
  CallLabel copy = *this;
  visit_fields(copy, [&](const auto& field) {
    std::memcpy(bytes.data() + at, &field, sizeof(field));
    at += sizeof(field);
  });
  return bytes;
}

CallLabel CallLabel::unpack(const Label& bytes) {
  CallLabel label;
  std::size_t at = 0;
  visit_fields(label, [&](auto& field) {
    std::memcpy(&field, bytes.data() + at, sizeof(field));
    at += sizeof(field);
  });
  return label;
}

std::string CallLabel::describe() const {
  std::string text = name(operation);
  if (operation == Operation::kSend) text += " from rank " + std::to_string(root);
  if (reduce_op != ReduceOp::kNone) text += " (" + std::string(to_string(reduce_op)) + ")";
  if (count > 0) text += " of " + std::to_string(count) + " " + name(type) + " elements";
  return text + ", call " + std::to_string(call);
}

std::uint64_t digest(std::span<const std::int64_t> counts) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::int64_t count : counts) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash = (hash ^ (static_cast<std::uint64_t>(count) >> shift & 0xff)) * 0x100000001b3;
    }
  }
  return hash;
}

std::string describe_difference(int own_rank, const CallLabel& own, int peer,
                                const CallLabel& theirs) {
  const std::string they = "rank " + std::to_string(peer);
  const std::string we = "rank " + std::to_string(own_rank);
  const std::string they_called = they + " called " + name(theirs.operation) + " with ";
  const auto both = [&](const std::string& their_value, const std::string& own_value) {
    return they_called + their_value + ", " + we + " with " + own_value;
  };
  // What two ranks do alone is counted apart from the calls of all.
  const bool one_is_alone =
      (own.operation == Operation::kSend) != (theirs.operation == Operation::kSend);
  if (own.call != theirs.call && !one_is_alone) {
    return they + " is at call " + std::to_string(theirs.call) + " of the group (" +
           name(theirs.operation) + "), " + we + " at call " + std::to_string(own.call) + " (" +
           name(own.operation) + "): all ranks must make the same calls in the same order";
  }
  if (own.operation != theirs.operation) {
    return they + " called " + name(theirs.operation) + ", " + we + " " + name(own.operation) +
           ": all ranks must make the same calls in the same order";
  }
  if (own.operation == Operation::kSend && own.root != theirs.root) {
    // Receivers show no label.
    return they + " and " + we + " both send: one of the two must receive";
  }
  if (own.type != theirs.type) {
    return both("elements of " + name(theirs.type), "elements of " + name(own.type));
  }
  if (own.reduce_op != theirs.reduce_op) {
    return both("reduction " + std::string(to_string(theirs.reduce_op)),
                std::string(to_string(own.reduce_op)));
  }
  if (own.count != theirs.count) {
    return both(std::to_string(theirs.count) + " elements of " + name(theirs.type),
                std::to_string(own.count));
  }
  if (own.quantized != theirs.quantized || own.two_level != theirs.two_level ||
      !(own.format == theirs.format)) {
    return both("data " + path_name(theirs), "data " + path_name(own));
  }
  if (own.counts_digest != theirs.counts_digest) {
    return both("its " + std::to_string(theirs.count) + " elements divided otherwise among ranks",
                "other counts a rank");
  }
  if (own.root != theirs.root) {
    return both("root " + std::to_string(theirs.root), "root " + std::to_string(own.root));
  }
  if (std::memcmp(&own.factor, &theirs.factor, sizeof(own.factor)) != 0) {
    return both("factor " + std::to_string(theirs.factor), "factor " + std::to_string(own.factor));
  }
  return both("segment_numel " + std::to_string(theirs.segment_numel),
              std::to_string(own.segment_numel));
}

}  // namespace agoq
