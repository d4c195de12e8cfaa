#include "handshake.h"

#include <sstream>
#include <utility>

#include "agoqcomm/error.h"
#include "peer_processes.h"

namespace agoq {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr const char* kVerdictKey = "agoq/verdict";

/// What a rank publishes: its identity, then a line for each field.
struct Card {
  std::string identity;
  std::vector<FingerprintField> fields;

  std::string pack() const {
    std::string text = identity + "\n";
    for (const auto& field : fields) text += field.name + "=" + field.value + "\n";
    return text;
  }

  static Card unpack(const std::string& text) {
    std::istringstream lines(text);
    Card card;
    std::getline(lines, card.identity);
    for (std::string line; std::getline(lines, line);) {
      const auto equals = line.find('=');
      card.fields.push_back({line.substr(0, equals), line.substr(equals + 1)});
    }
    return card;
  }
};

/// What rank 0 publishes: a kind of error and its sentence (both empty when all is well), then
/// every rank's identity.
struct Verdict {
  char kind = '-';  // '-' none, 'm' mismatch, 't' timeout
  std::string sentence;
  std::vector<std::string> identities;

  std::string pack() const {
    std::string text = kind + sentence + "\n";
    for (const auto& identity : identities) text += identity + "\n";
    return text;
  }

  static Verdict unpack(const std::string& text) {
    std::istringstream lines(text);
    std::string first;
    std::getline(lines, first);
    Verdict verdict{first.empty() ? '-' : first[0], first.empty() ? "" : first.substr(1), {}};
    for (std::string line; std::getline(lines, line);) verdict.identities.push_back(line);
    return verdict;
  }
};

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
    verdict.identities.push_back(cards.back().identity);
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

std::vector<std::string> handshake(c10d::Store& store, int rank, int size,
                                   const AgoqOptions& options, milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  store.set(card_key(rank), Card{PeerProcesses::own_identity(), options.all_fields()}.pack());
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
  return std::move(verdict.identities);
}

}  // namespace agoq
