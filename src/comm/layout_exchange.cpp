// SPDX-License-Identifier: Apache-2.0
#include "comm/layout_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/host.hpp"
#include "base/text.hpp"
#include "base/wire.hpp"
#include "model/rank_layout.hpp"
#include "topology/merge.hpp"

namespace tutti {

using topology::Graph;
using topology::Interest;
using topology::Seat;

namespace {

// The limit of a host's graph: a thousand times what the largest machines take.
constexpr std::uint64_t kMostGraphBytes = std::uint64_t{64} << 20;
// The bytes of a graph in one answer; a packet holds 64 KiB.
constexpr std::size_t kMostPieceBytes = 60'000;

const char* from_environment(const char* name) { return std::getenv(name); }

}  // namespace

OwnPlace look_at_own_place(const Config& config, Rank rank, const std::vector<PeerInfo>& peers) {
  const std::uint64_t host = peers[static_cast<std::size_t>(rank)].host_id;
  const auto before = std::span(peers).first(static_cast<std::size_t>(rank));
  const auto index = static_cast<std::size_t>(std::ranges::count(before, host, &PeerInfo::host_id));
  OwnPlace own{topology::parse_seats(config.seats, index),
               topology::interest_in_topology(config.topology, from_environment, "/sys")};
  if (own.interest != Interest::kOff && !config.cluster.empty()) own.interest = Interest::kAlways;
  return own;
}

std::uint64_t seat_hash(const Seat& seat) {
  static_assert(std::has_unique_object_representations_v<Seat>);
  return hash_bytes({reinterpret_cast<const char*>(&seat), sizeof seat});
}

bool layout_matters(std::span<const RankFacts> all, const std::vector<PeerInfo>& peers) {
  // Two ranks stand in one order only.
  if (all.size() < 3 || all.front().interest == Interest::kOff) return false;
  std::map<std::uint64_t, std::uint64_t> seats;  // by host, of its first rank
  bool several = false;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].interest == Interest::kAlways) return true;
    const auto [first, fresh] = seats.emplace(peers[rank].host_id, all[rank].seat_hash);
    const bool differs = !fresh && first->second != all[rank].seat_hash;
    several = several || (differs && all[rank].interest == Interest::kIfSeated);
  }
  return several || seats.size() > 1;
}

namespace {

// Holds what a rank tells all others: its place, and the bytes to fetch from a host's first rank.
struct Place {
  Seat seat;
  std::uint64_t graph_bytes = 0;  // 0: it has none to give
};

// Holds the bytes that the service thread sends in pieces.
class GraphLender {
 public:
  explicit GraphLender(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  [[nodiscard]] std::vector<std::byte> piece(std::uint64_t offset) const {
    const std::size_t begin = std::min<std::uint64_t>(offset, bytes_.size());
    const auto rest = std::span(bytes_).subspan(begin);
    const auto given = rest.first(std::min(rest.size(), kMostPieceBytes));
    return {given.begin(), given.end()};
  }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  const std::vector<std::byte> bytes_;
};

class Gathering {
 public:
  Gathering(ControlPlane& control, const Config& config, const Log& log, Deadline deadline)
      : control_(control), config_(config), log_(log), deadline_(deadline) {
    for (const PeerInfo& peer : control_.peers()) {
      const auto [host, fresh] = host_numbers_.emplace(peer.host_id, leaders_.size());
      if (fresh) leaders_.push_back(peer.rank);
      host_of_.push_back(static_cast<std::uint32_t>(host->second));
    }
  }

  Result<AgreedLayout> run(const Seat& seat) {
    // Discovered before the exchange: who has all places can fetch.
    if (std::ranges::find(leaders_, control_.rank()) != leaders_.end()) discover();
    const Place own{seat, lender_->bytes().size()};
    TUTTI_TRY_ASSIGN(places_, control_.allgather_values(own, deadline_));
    if (control_.rank() != 0) return AgreedLayout{};
    Result<AgreedLayout> laid = lay();
    if (laid) return laid;
    TUTTI_LOG(log_, LogLevel::kWarn, "{}; rings and trees follow rank numbers",
              laid.error().message);
    return AgreedLayout{{}, {}, "the topology of the hosts cannot be used"};
  }

 private:
  void discover() {
    if (config_.topology == "off") return;
    Result<topology::HostSource> source =
        topology::read_host_source(config_.topology, from_environment);
    if (!source) {
      TUTTI_LOG(log_, LogLevel::kWarn, "{}; rings and trees follow rank numbers",
                source.error().message);
      return;
    }
    source_ = source->name;
    lender_ = std::make_shared<const GraphLender>(encode(source->graph));
    if (control_.rank() == 0) return;
    control_.serve(RequestKind::kTopology,
                   [lender = lender_](const Request& request) -> Result<HandlerReply> {
                     Reader reader(request.payload);
                     const auto offset = reader.number<std::uint64_t>();
                     TUTTI_TRY(reader.finish());
                     return HandlerReply{.payload = lender->piece(offset)};
                   });
  }

  Result<std::vector<std::byte>> fetch(Rank leader, std::uint64_t bytes) {
    if (leader == control_.rank()) {
      const auto own = lender_->bytes();
      return std::vector<std::byte>(own.begin(), own.end());
    }
    std::vector<std::byte> fetched;
    while (fetched.size() < bytes) {
      Writer question;
      question.number(static_cast<std::uint64_t>(fetched.size()));
      TUTTI_TRY_ASSIGN(const Reply reply,
                       control_.call(leader, RequestKind::kTopology, question.bytes(), deadline_));
      if (reply.payload.empty() || reply.payload.size() > bytes - fetched.size())
        return make_error(Code::kRemoteError,
                          fmt::format("rank {} sent another topology than it announced", leader),
                          leader);
      fetched.insert(fetched.end(), reply.payload.begin(), reply.payload.end());
    }
    return fetched;
  }

  Result<std::vector<Graph>> fetch_all() {
    std::vector<Graph> hosts;
    for (const Rank leader : leaders_) {
      const auto at = static_cast<std::size_t>(leader);
      if (places_[at].graph_bytes == 0 || places_[at].graph_bytes > kMostGraphBytes) return hosts;
      TUTTI_TRY_ASSIGN(const std::vector<std::byte> bytes, fetch(leader, places_[at].graph_bytes));
      TUTTI_TRY_ASSIGN(Graph graph, topology::decode(bytes));
      if (graph.hosts() != 1)
        return make_error(Code::kInvalidArgument,
                          fmt::format("the topology of rank {}'s host describes {} hosts; give "
                                      "each host its own file (TUTTI_TOPOLOGY)",
                                      leader, graph.hosts()),
                          leader);
      hosts.push_back(std::move(graph));
    }
    return hosts;
  }

  Result<AgreedLayout> lay() {
    TUTTI_TRY_ASSIGN(const std::vector<Graph> hosts, fetch_all());
    if (hosts.size() < leaders_.size()) {
      const PeerInfo& peer = control_.peers()[static_cast<std::size_t>(leaders_[hosts.size()])];
      return AgreedLayout{{}, {}, fmt::format("{} has no topology", printable(peer.host))};
    }
    std::optional<Cluster> cluster;
    if (!config_.cluster.empty()) {
      TUTTI_TRY_ASSIGN(cluster, read_cluster(config_.cluster));
    }
    TUTTI_TRY_ASSIGN(const Graph graph, topology::merge(hosts, cluster ? &*cluster : nullptr));
    std::vector<topology::DeviceId> devices;
    for (std::size_t rank = 0; rank < places_.size(); ++rank) {
      TUTTI_TRY_ASSIGN(const topology::DeviceId device,
                       topology::find_seat(graph, host_of_[rank], places_[rank].seat));
      devices.push_back(device);
    }
    TUTTI_TRY_ASSIGN(RankLayout laid, lay_ranks(graph, devices));
    std::string source = hosts.size() == 1 ? source_
                                           : fmt::format("{} hosts merged{}", hosts.size(),
                                                         cluster ? " by TUTTI_CLUSTER" : "");
    if (laid.crossings < laid.crossings_by_number)
      source =
          fmt::format("{} (a ring crosses between groups {} times; by rank number it would be {})",
                      source, laid.crossings, laid.crossings_by_number);
    return AgreedLayout{RankOrders(std::move(laid.rings), std::move(laid.tree)),
                        std::move(laid.groups), std::move(source)};
  }

  ControlPlane& control_;
  const Config& config_;
  const Log& log_;
  const Deadline deadline_;
  std::map<std::uint64_t, std::size_t> host_numbers_;  // by host_id, as first ranks come
  std::vector<Rank> leaders_;                          // by host
  std::vector<std::uint32_t> host_of_;                 // by rank
  std::vector<Place> places_;                          // by rank
  std::shared_ptr<const GraphLender> lender_ =
      std::make_shared<const GraphLender>(std::vector<std::byte>());
  std::string source_;
};

}  // namespace

Result<AgreedLayout> gather_layout(ControlPlane& control, const Config& config, const Log& log,
                                   const Seat& seat, Deadline deadline) {
  return Gathering(control, config, log, deadline).run(seat);
}

}  // namespace tutti
