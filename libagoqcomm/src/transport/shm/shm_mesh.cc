#include "transport/shm/shm_mesh.h"

#include <algorithm>
#include <utility>

#include "agoqcomm/error.h"
#include "transport/mesh/hello.h"
#include "transport/mesh/rendezvous.h"
#include "transport/shm/segment.h"
#include "transport/shm/shm_link.h"

namespace agoq {
namespace {

// The members have all reached this point, so that more would only delay the turn to tcp.
constexpr auto kMeetingTime = std::chrono::seconds(30);

int index_of(const std::vector<int>& members, int rank) {
  return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
}

/// The words of an error of `body`, or none.
template <typename Body>
std::optional<std::string> problem_of(Body&& body) {
  try {
    body();
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

std::shared_ptr<Arena> connect_shm_links(Store& store, const TransportConfig& config, int rank,
                                         const std::vector<int>& members,
                                         Clock::time_point deadline,
                                         std::vector<std::unique_ptr<Link>>& links,
                                         std::optional<std::string>& problem) {
  const std::string key = config.name + "/shm";
  const int ranks = static_cast<int>(members.size());
  std::shared_ptr<Segment> own;
  problem = problem_of([&] { own = Segment::create(ranks, config.shared_bytes); });
  problem = agree(store, key + "/created", rank, members, problem, deadline);
  if (problem) return nullptr;

  const auto arena = std::make_shared<Arena>(own);
  std::vector<std::unique_ptr<Link>> made;
  std::vector<int> peers;
  problem = problem_of([&] {
    Meeting meeting{key, rank, {}, std::min(deadline, Clock::now() + kMeetingTime), own->fd()};
    std::copy_if(members.begin(), members.end(), std::back_inserter(meeting.peers),
                 [&](int member) { return member != rank; });
    const auto name = Endpoint::unix_name("agoq-" + to_hex(random_secret()));
    for (PeerSocket& socket : meet(store, meeting, name)) {
      made.push_back(std::make_unique<ShmLink>(
          ShmEnds{socket.peer, index_of(members, rank), index_of(members, socket.peer), arena,
                  Segment::attach(socket.passed, ranks), std::move(socket.fd), "shared memory"}));
      peers.push_back(socket.peer);
    }
  });
  problem = agree(store, key + "/attached", rank, members, problem, deadline);
  if (problem) return nullptr;
  own->close_fd();
  for (std::size_t i = 0; i < made.size(); ++i) {
    links[static_cast<std::size_t>(peers[i])] = std::move(made[i]);
  }
  return arena;
}

}  // namespace agoq
