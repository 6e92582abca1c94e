// The ways from one rank to the others: by which transport, whose memory is within reach, and what
// is owed to those far away before a rank leaves.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <set>

#include "runtime/communicator.hpp"
#include "runtime/faults.hpp"
#include "transports/routed_transport.hpp"
#include "transports/shm/shm_transport.hpp"
#include "transports/tcp/tcp_transport.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace tutti {
namespace {

constexpr std::int64_t kMostTellNs = 2'000'000'000;  // all far peers, of an error
constexpr std::int64_t kMostTellOneNs = 300'000'000;

// Would a user expect RDMA here?
bool has_active_port(const Config& config) {
  const auto ports = verbs_ports({.hca = config.ib_hca, .gid_index = config.ib_gid_index});
  return ports && std::ranges::any_of(*ports, &VerbsPort::active);
}

}  // namespace

// Shared memory within a host, RDMA or TCP between hosts, or what TUTTI_TRANSPORT forces.
Result<std::unique_ptr<Transport>> Communicator::make_transport(Deadline deadline) {
  const bool together = host_ranks_ == ranks_;
  const TransportChoice choice = config_.transport;
  std::unique_ptr<Transport> near, far;
  if (!together || choice == TransportChoice::kVerbs) {
    TUTTI_TRY_ASSIGN(far, make_rdma(deadline));
  }
  if (!forces_wire(choice)) {
    TUTTI_TRY_ASSIGN(
        near, make_shm_transport(*control_, {.arena_bytes = config_.arena_bytes, .log = log_}));
    if (together) return near;
    if (choice == TransportChoice::kShm) {
      const auto other =
          std::ranges::find_if(peers_, [&](const PeerInfo& peer) { return !near->reaches(peer); });
      return make_error(Code::kNotSupported,
                        fmt::format("{} is on another host, which TUTTI_TRANSPORT=shm does not "
                                    "reach; unset it, or set it to tcp",
                                    describe_rank(peers_, other->rank)),
                        other->rank);
    }
  }
  if (far == nullptr) {
    TUTTI_TRY_ASSIGN(far, make_tcp());
  }
  if (near == nullptr) return far;
  return make_routed_transport(*control_, std::move(near), std::move(far));
}

// Null: the ranks do not all have an active port of one kind, and may do without.
Result<std::unique_ptr<Transport>> Communicator::make_rdma(Deadline deadline) {
  const TransportChoice choice = config_.transport;
  const bool together = host_ranks_ == ranks_;
  const bool wanted = choice == TransportChoice::kAuto || choice == TransportChoice::kVerbs;
  enum class Port : std::uint8_t { kNone, kInfiniBand, kEthernet } mine = Port::kNone;
  std::unique_ptr<Transport> transport;
  if (wanted) {
    Result<VerbsWay> way = make_verbs_transport(*control_, {.hca = config_.ib_hca,
                                                            .gid_index = config_.ib_gid_index,
                                                            .timeout = config_.ib_timeout,
                                                            .retries = config_.ib_retries,
                                                            .arena_bytes = config_.arena_bytes,
                                                            .log = log_});
    // What the kernel refuses, it refuses here: memory that must be locked.
    const Status listens = way ? way->transport->listen() : tl::unexpected(way.error());
    if (listens) {
      mine = way->port.ethernet ? Port::kEthernet : Port::kInfiniBand;
      transport = std::move(way->transport);
    } else if (choice == TransportChoice::kVerbs ||
               listens.error().code == Code::kInvalidArgument) {
      return tl::unexpected(listens.error());
    } else {
      const bool expected = way || has_active_port(config_);
      TUTTI_LOG(log_, expected ? LogLevel::kWarn : LogLevel::kInfo, "no RDMA: {}",
                listens.error().message);
    }
  }
  if (together) return transport;
  // Also of those that force another way: that ranks differ in this is said later, by agreement.
  TUTTI_TRY_ASSIGN(const std::vector<Port> all, control_->allgather_values(mine, deadline));
  const auto other = std::ranges::find_if(all, [&](Port port) { return port != mine; });
  if (other == all.end()) return transport;
  const auto rank = static_cast<Rank>(other - all.begin());
  if (choice == TransportChoice::kVerbs)
    return make_error(Code::kNotSupported,
                      fmt::format("{} has no RDMA port of the kind that {} has; look at tutti-info "
                                  "on both hosts, or set TUTTI_TRANSPORT=tcp",
                                  describe_rank(peers_, rank), describe_rank(peers_, rank_)),
                      rank);
  const auto first = std::ranges::find_if(all, [](Port port) { return port != Port::kNone; });
  if (mine != Port::kNone)
    TUTTI_LOG(log_, first - all.begin() == rank_ ? LogLevel::kWarn : LogLevel::kInfo,
              "no RDMA: {} has no port of the kind that {} has", describe_rank(peers_, rank),
              describe_rank(peers_, rank_));
  return std::unique_ptr<Transport>();
}

Result<std::unique_ptr<Transport>> Communicator::make_tcp() {
  const std::string ip = control_->ip();
  if (ip.empty() && host_ranks_ != ranks_)
    return make_error(Code::kSystemError,
                      fmt::format("{} has no network interface for the ranks of other hosts; set "
                                  "TUTTI_IFNAME",
                                  describe_rank(peers_, rank_)));
  return make_tcp_transport(
      *control_,
      {.ip = ip.empty() ? "127.0.0.1" : ip, .arena_bytes = config_.arena_bytes, .log = log_});
}

bool Communicator::is_far(Rank rank) const {
  return peers_[static_cast<std::size_t>(rank)].host_id !=
         peers_[static_cast<std::size_t>(rank_)].host_id;
}

AccessView Communicator::look_at_peers() {
  AccessView view{.access = PeerAccess::kMapped, .rank = rank_};
  if (host_ranks_ != ranks_ || forces_wire(config_.transport)) {
    const auto other = std::ranges::find_if(
        peers_, [&](const PeerInfo& peer) { return peer.rank != rank_ && is_far(peer.rank); });
    return {.access = PeerAccess::kNone,
            .refused = other == peers_.end() ? kNoRank : other->rank,
            .error = EREMOTE,
            .rank = rank_};
  }
  for (const PeerInfo& peer : peers_) {
    if (peer.process_token == peers_[static_cast<std::size_t>(rank_)].process_token) continue;
    view.access = PeerAccess::kAttach;
    const bool off = config_.cma == CmaChoice::kOff;
    const int error = off ? 0 : PeerMemory(peer, board_->call_record(peer.rank)).probe();
    if (!off && error == 0) continue;
    TUTTI_LOG(log_, LogLevel::kInfo, "no direct plans: {}",
              off ? "TUTTI_CMA=off"
                  : fmt::format("{} cannot be read: {}", describe_rank(peers_, peer.rank),
                                std::strerror(error)));
    return {.access = PeerAccess::kNone, .refused = peer.rank, .error = error, .rank = rank_};
  }
  return view;
}

Result<PeerMemory> Communicator::memory_of(Rank peer) {
  const PeerInfo& info = peers_[static_cast<std::size_t>(peer)];
  if (info.process_token != peers_[static_cast<std::size_t>(rank_)].process_token)
    return PeerMemory(info, board_->call_record(peer), &windows_->of(peer));
  std::shared_ptr<CallRecord> local = find_call_record(control_->session(), peer);
  if (local == nullptr)
    return make_error(Code::kRemoteError,
                      fmt::format("{} has destroyed its communicator", describe_rank(peers_, peer)),
                      peer);
  return PeerMemory(std::move(local));
}

// What the peers' hosts have not taken yet would be lost with the connections.
void Communicator::drain() {
  if (!transport_ || !board_) return;
  Waiter waiter({.spins = 100});
  bool warned = false;
  Transport::Owed owed = transport_->owed(), last = owed;
  for (; owed.bytes > 0 && !board_->poisoned(); owed = transport_->owed()) {
    last = owed;
    static_cast<void>(waiter.wait());
    if (waiter.waited_ns() >= config_.op_timeout_ns) break;
    if (!warned && waiter.waited_ns() >= config_.warn_after_ns) {
      warned = true;
      TUTTI_LOG(log_, LogLevel::kWarn, "leaving waits for {} to take {} bytes of finished calls",
                describe_rank(peers_, owed.peer), owed.bytes);
    }
    if (!transport_->progress()) return;
  }
  // Who has left in order needed nothing more; of a poisoned communicator nobody does.
  if (last.bytes == 0 || board_->poisoned() || transport_->has_left(last.peer)) return;
  const Status health = transport_->health(last.peer);
  if (owed.bytes == 0 && health) return;
  TUTTI_LOG(log_, LogLevel::kWarn,
            "left with {} bytes of finished calls that {} has not taken: they are lost to it; {}",
            last.bytes, describe_rank(peers_, last.peer),
            health ? "the operation timeout (TUTTI_OP_TIMEOUT_S) is over" : health.error().message);
}

// Of deaths on other hosts there is no notice but the poison that names one.
bool Communicator::died_far(Rank rank) const {
  if (!is_far(rank)) return false;
  const auto poison = board_->read_poison();
  return poison && poison->kind == Poison::Kind::kDeath && poison->culprit == rank;
}

// Ranks of other hosts that may wait for this one learn why it leaves, if not in order.
void Communicator::tell_why() {
  const auto poison = board_->read_poison();
  if (!poison) return;
  leaving_.store(true, std::memory_order_relaxed);
  const Deadline deadline = Deadline::in_ns(kMostTellNs);
  std::set<Rank> told{poison->culprit == rank_ ? kNoRank : poison->culprit};  // needs no word
  for (const auto& [id, bound] : plans_)
    for (const auto* specs : {&bound->plan.sends, &bound->plan.recvs})
      for (const ConnectionSpec& spec : *specs) {
        const Rank peer = spec.source == rank_ ? spec.destination : spec.source;
        if (!is_far(peer) || !told.insert(peer).second) continue;
        const std::int64_t share_ns = std::min(kMostTellOneNs, deadline.left_ns());
        if (share_ns > 0)
          static_cast<void>(board_->ask(peer, operation_, Deadline::in_ns(share_ns)));
      }
}

// From the others, as far as they are owed anything.
void Communicator::part() {
  try {
    drain();
    if (board_) board_->set_state(RankState::kLeft);
    if (!board_ || !transport_ || !transport_->capabilities().pumps) return;
    if (board_->poisoned())
      tell_why();
    else
      transport_->say_goodbye();
  } catch (const std::bad_alloc&) {
    // They find the connections closed.
  }
}

}  // namespace tutti
