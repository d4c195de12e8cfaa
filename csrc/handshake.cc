#include "handshake.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "agoqcomm/error.h"
#include "agoqcomm/topology.h"
#include "peer_processes.h"

namespace agoq {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kVerdictKey = "agoq/verdict";

/// What a rank publishes: its process and its node, then a line for each field.
struct Card {
  std::string process;
  std::string node;
  std::vector<FingerprintField> fields;

  std::string pack() const {
    std::string text = process + "\n" + node + "\n";
    for (const auto& field : fields) text += field.name + "=" + field.value + "\n";
    return text;
  }

  static Card unpack(const std::string& text) {
    std::istringstream lines(text);
    Card card;
    std::getline(lines, card.process);
    std::getline(lines, card.node);
    for (std::string line; std::getline(lines, line);) {
      const auto equals = line.find('=');
      card.fields.push_back({line.substr(0, equals), line.substr(equals + 1)});
    }
    return card;
  }
};

/// What rank 0 publishes: a kind of error and its sentence (both empty when all is well), then
/// every rank's process and node.
struct Verdict {
  char kind = '-';  // '-' none, 'm' mismatch, 't' timeout
  std::string sentence;
  Introductions ranks;

  std::string pack() const {
    std::string text = kind + sentence + "\n";
    for (std::size_t rank = 0; rank < ranks.processes.size(); ++rank) {
      text += ranks.processes[rank] + "\n" + ranks.nodes[rank] + "\n";
    }
    return text;
  }

  static Verdict unpack(const std::string& text) {
    std::istringstream lines(text);
    std::string first;
    std::getline(lines, first);
    Verdict verdict{first.empty() ? '-' : first[0], first.empty() ? "" : first.substr(1), {}};
    for (std::string process, node; std::getline(lines, process) && std::getline(lines, node);) {
      verdict.ranks.processes.push_back(process);
      verdict.ranks.nodes.push_back(node);
    }
    return verdict;
  }
};

/// AGOQ_NODE_ID may hold anything.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string card_key(int rank) { return "agoq/card/" + std::to_string(rank); }

/// False when the key did not appear in time.
bool await(c10d::Store& store, const std::string& key, steady_clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
  try {
    store.wait({key}, std::max(left, milliseconds(1)));
    return true;
  } catch (const c10::DistStoreError&) {
    return false;
  }
}

Verdict judge(c10d::Store& store, int size, steady_clock::time_point deadline,
              milliseconds timeout) {
  Verdict verdict;
  std::vector<Card> cards;
  std::string missing;
  for (int rank = 0; rank < size; ++rank) {
    if (!await(store, card_key(rank), deadline)) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      continue;
    }
    cards.push_back(Card::unpack(store.get_to_str(card_key(rank))));
    verdict.ranks.processes.push_back(cards.back().process);
    verdict.ranks.nodes.push_back(cards.back().node);
  }
  if (!missing.empty()) {
    verdict.kind = 't';
    verdict.sentence = "agoq: Timed out after " + std::to_string(timeout.count()) +
                       " ms in the start-up handshake: rank(s) " + missing +
                       " did not come; start them, or give init_process_group a longer timeout.";
    return verdict;
  }
  for (int rank = 1; rank < size; ++rank) {
    const auto difference = compare_fingerprints(0, cards[0].fields, rank, cards[rank].fields);
    if (difference.empty()) continue;
    verdict.kind = 'm';
    verdict.sentence = "agoq: the start-up handshake failed: " + difference;
    return verdict;
  }
  return verdict;
}

}  // namespace

Introductions handshake(c10d::Store& store, int rank, int size, const AgoqOptions& options,
                        milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  store.set(
      card_key(rank),
      Card{PeerProcesses::own_identity(), one_line(node_identity()), options.all_fields()}.pack());
  Verdict verdict;
  if (rank == 0) {
    // Judged a little early, so that the others still wait when a late rank is to be named.
    verdict = judge(store, size, deadline - timeout / 10, timeout);
    store.set(kVerdictKey, verdict.pack());
  } else if (await(store, kVerdictKey, deadline)) {
    verdict = Verdict::unpack(store.get_to_str(kVerdictKey));
  } else {
    throw Error(ErrorCode::kTimeout, "agoq: Timed out after " + std::to_string(timeout.count()) +
                                         " ms in the start-up handshake: rank 0 did not come.");
  }
  if (verdict.kind == 'm') throw Error(ErrorCode::kMismatch, verdict.sentence);
  if (verdict.kind == 't') throw Error(ErrorCode::kTimeout, verdict.sentence);
  return std::move(verdict.ranks);
}

}  // namespace agoq
