// SPDX-License-Identifier: Apache-2.0
#include "comm/ways.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

#include "exec/waiter.hpp"
#include "transports/registry.hpp"
#include "transports/routed_transport.hpp"

namespace tutti {
namespace {

constexpr std::int64_t kMostTellNs = 2'000'000'000;  // all far peers, of an error
constexpr std::int64_t kMostTellOneNs = 300'000'000;

// Returns kind 0 if this rank does without the transport. Shared memory is not a wire's rival: it
// is there whatever wire is forced.
Result<OpenedTransport> open_here(const Membership& members, const TransportInfo& info) {
  const bool forced = members.config().transport == info.choice;
  const bool wanted =
      forced || members.config().transport == TransportChoice::kAuto || info.reach == Reach::kHost;
  if (!wanted) return OpenedTransport{.transport = nullptr, .kind = 0};
  Result<OpenedTransport> opened =
      info.open(members.control(),
                {.config = members.config(), .ip = members.control().ip(), .log = members.log()});
  if (opened || forced || info.needs.empty() || opened.error().code == Code::kInvalidArgument)
    return opened;
  TUTTI_LOG(members.log(), info.expected(members.config()) ? LogLevel::kWarn : LogLevel::kInfo,
            "no {}: {}", info.needs, opened.error().message);
  return OpenedTransport{.transport = nullptr, .kind = 0};
}

// Collective, also over ranks that force another transport: that ranks differ in this is said
// later, by agreement.
Result<bool> all_have(const Membership& members, const TransportInfo& info,
                      const OpenedTransport& mine, Deadline deadline) {
  TUTTI_TRY_ASSIGN(const std::vector<std::uint8_t> kinds,
                   members.control().allgather_values(mine.kind, deadline));
  const auto other =
      std::ranges::find_if(kinds, [&](std::uint8_t kind) { return kind != mine.kind; });
  if (other == kinds.end()) return true;
  const auto rank = static_cast<Rank>(other - kinds.begin());
  if (members.config().transport == info.choice)
    return make_error(
        Code::kNotSupported,
        fmt::format("{} has no {} of the kind that {} has; compare tutti-info on both hosts, or "
                    "set TUTTI_TRANSPORT=tcp",
                    members.describe(rank), info.needs, members.describe(members.rank())),
        rank);
  const auto first = std::ranges::find_if(kinds, [](std::uint8_t kind) { return kind != 0; });
  if (mine.kind != 0)
    TUTTI_LOG(members.log(),
              first - kinds.begin() == members.rank() ? LogLevel::kWarn : LogLevel::kInfo,
              "{} is not used: {} has no {} of the kind that {} has", info.name,
              members.describe(rank), info.needs, members.describe(members.rank()));
  return false;
}

// The first transport of this reach that all ranks have alike; null: TUTTI_TRANSPORT allows none.
Result<std::unique_ptr<Transport>> open_first(const Membership& members, Reach reach,
                                              Deadline deadline) {
  for (const TransportInfo& info : all_transports()) {
    if (info.reach != reach) continue;
    TUTTI_TRY_ASSIGN(OpenedTransport opened, open_here(members, info));
    if (!info.needs.empty() && members.host_ranks() != members.ranks()) {
      TUTTI_TRY_ASSIGN(const bool alike, all_have(members, info, opened, deadline));
      if (!alike) continue;
    }
    if (opened.transport != nullptr) return std::move(opened.transport);
  }
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<Transport>> open_transport(const Membership& members, Deadline deadline) {
  const bool together = members.host_ranks() == members.ranks();
  std::unique_ptr<Transport> near, far;
  if (!together || forces_wire(members.config().transport)) {
    TUTTI_TRY_ASSIGN(far, open_first(members, Reach::kNetwork, deadline));
  }
  if (forces_wire(members.config().transport)) return far;
  TUTTI_TRY_ASSIGN(near, open_first(members, Reach::kHost, deadline));
  if (together) return near;
  if (far != nullptr)
    return make_routed_transport(members.control(), std::move(near), std::move(far));
  const auto other = std::ranges::find_if(
      members.peers(), [&](const PeerInfo& peer) { return !near->reaches(peer); });
  return make_error(Code::kNotSupported,
                    fmt::format("{} is on another host, which TUTTI_TRANSPORT=shm cannot reach; "
                                "unset it, or set it to tcp",
                                members.describe(other->rank)),
                    other->rank);
}

namespace {

// The next rank, in turn, of another process; null: there is none.
const PeerInfo* next_process(const Membership& members) {
  for (Rank distance = 1; distance < members.ranks(); ++distance) {
    const Rank next = (members.rank() + distance) % members.ranks();
    if (!members.in_this_process(next)) return &members.peer(next);
  }
  return nullptr;
}

}  // namespace

AccessView look_at_peers(const Membership& members) {
  AccessView view{.access = PeerAccess::kMapped, .rank = members.rank()};
  if (members.host_ranks() != members.ranks() || forces_wire(members.config().transport)) {
    const auto other = std::ranges::find_if(members.peers(), [&](const PeerInfo& peer) {
      return peer.rank != members.rank() && members.is_far(peer.rank);
    });
    return {.access = PeerAccess::kNone,
            .refused = other == members.peers().end() ? kNoRank : other->rank,
            .error = EREMOTE,
            .rank = members.rank()};
  }
  const PeerInfo* const peer = next_process(members);
  if (peer == nullptr) return view;
  view.access = PeerAccess::kAttach;
  const bool off = members.config().cma == CmaChoice::kOff;
  const int error = off ? 0 : PeerMemory(*peer, members.board().call_record(peer->rank)).probe();
  if (!off && error == 0) return view;
  TUTTI_LOG(members.log(), LogLevel::kInfo,
            "plans that work in other ranks' memory are not used: {}",
            off ? "TUTTI_CMA=off"
                : fmt::format("{} cannot be read: {}", members.describe(peer->rank),
                              std::strerror(error)));
  return {
      .access = PeerAccess::kNone, .refused = peer->rank, .error = error, .rank = members.rank()};
}

Result<PeerMemory> memory_of(Rank peer, const Membership& members, const WindowTable& windows) {
  if (!members.in_this_process(peer))
    return PeerMemory(members.peer(peer), members.board().call_record(peer), &windows.of(peer));
  std::shared_ptr<CallRecord> local = find_call_record(members.control().session(), peer);
  if (local == nullptr)
    return make_error(Code::kRemoteError,
                      fmt::format("{} has destroyed its communicator", members.describe(peer)),
                      peer);
  return PeerMemory(std::move(local));
}

namespace {

// Bytes that the peers' hosts have not taken yet would be lost with the connections.
void drain(const Membership& members, Transport& transport) {
  Waiter waiter({.spins = 100});
  bool warned = false;
  Transport::Owed owed = transport.owed(), last = owed;
  for (; owed.bytes > 0 && !members.board().poisoned(); owed = transport.owed()) {
    last = owed;
    static_cast<void>(waiter.wait());
    if (waiter.waited_ns() >= members.config().op_timeout_ns) break;
    if (!warned && waiter.waited_ns() >= members.config().warn_after_ns) {
      warned = true;
      TUTTI_LOG(members.log(), LogLevel::kWarn,
                "this rank destroys its communicator and waits until {} has received {} bytes of "
                "finished calls",
                members.describe(owed.peer), owed.bytes);
    }
    if (!transport.progress()) return;
  }
  // A rank that left in order needed nothing more; in an aborted communicator no rank does.
  if (last.bytes == 0 || members.board().poisoned() || transport.has_left(last.peer)) return;
  const Status health = transport.health(last.peer);
  if (owed.bytes == 0 && health) return;
  TUTTI_LOG(
      members.log(), LogLevel::kWarn,
      "this rank destroyed its communicator before {1} received {0} bytes of finished calls, "
      "which are lost: {2}",
      last.bytes, members.describe(last.peer),
      health ? "the operation timeout (TUTTI_OP_TIMEOUT_S) has passed" : health.error().message);
}

// Ranks of other hosts that may wait for this one learn why it leaves, if not in order.
void tell_why(Membership& members, const std::set<Rank>& connected, std::uint64_t operation) {
  const auto poison = members.board().read_poison();
  if (!poison) return;
  members.begin_to_leave();
  const Deadline deadline = Deadline::in_ns(kMostTellNs);
  for (const Rank peer : connected) {
    if (!members.is_far(peer)) continue;
    if (peer == poison->culprit && peer != members.rank()) continue;  // needs no word
    const std::int64_t share_ns = std::min(kMostTellOneNs, deadline.left_ns());
    if (share_ns > 0)
      static_cast<void>(members.board().ask(peer, operation, Deadline::in_ns(share_ns)));
  }
}

}  // namespace

void part(Membership& members, Transport* transport,
          const std::function<std::set<Rank>()>& connected, std::uint64_t operation) noexcept {
  if (members.page() == nullptr) return;
  Board& board = members.board();
  try {
    if (transport != nullptr) drain(members, *transport);
    board.set_state(RankState::kLeft);
    if (transport == nullptr || !transport->capabilities().pumps) return;
    if (!board.poisoned())
      transport->say_goodbye();
    else
      tell_why(members, connected(), operation);
  } catch (const std::exception&) {
    // They find the connections closed.
  }
}

}  // namespace tutti
