// SPDX-License-Identifier: Apache-2.0
#include "transports/registry.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "transports/pair_slots.hpp"
#include "transports/shm/shm_transport.hpp"
#include "transports/tcp/tcp_transport.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace tutti {
namespace {

bool always(const Config& /*config*/) { return true; }

// For plans, and for sends and receives. Too large a part for plans is refused as it is.
std::uint64_t arena_bytes(const ControlChannel& control, const Config& config) {
  if (config.arena_bytes > kMaxArenaBytes) return config.arena_bytes;
  return PairSlots(static_cast<std::int32_t>(control.peers().size()), config.arena_bytes)
      .arena_bytes();
}

Result<OpenedTransport> open_shm(ControlChannel& control, const TransportOptions& options) {
  TUTTI_TRY_ASSIGN(auto transport,
                   make_shm_transport(control, {.arena_bytes = arena_bytes(control, options.config),
                                                .log = options.log}));
  return OpenedTransport{std::move(transport)};
}

bool has_active_port(const Config& config) {
  const auto ports = verbs_ports({.hca = config.ib_hca, .gid_index = config.ib_gid_index});
  return ports && std::ranges::any_of(*ports, &VerbsPort::active);
}

// Listens at once: it is then that the kernel refuses memory that must be locked.
Result<OpenedTransport> open_verbs(ControlChannel& control, const TransportOptions& options) {
  constexpr std::uint8_t kInfiniBand = 1, kEthernet = 2;
  const Config& config = options.config;
  TUTTI_TRY_ASSIGN(VerbsWay way,
                   make_verbs_transport(control, {.hca = config.ib_hca,
                                                  .gid_index = config.ib_gid_index,
                                                  .timeout = config.ib_timeout,
                                                  .retries = config.ib_retries,
                                                  .arena_bytes = arena_bytes(control, config),
                                                  .log = options.log}));
  TUTTI_TRY(way.transport->listen());
  return OpenedTransport{std::move(way.transport), way.port.ethernet ? kEthernet : kInfiniBand};
}

Result<OpenedTransport> open_tcp(ControlChannel& control, const TransportOptions& options) {
  const auto& peers = control.peers();
  const auto& self = peers[static_cast<std::size_t>(control.rank())];
  const bool together = std::ranges::all_of(
      peers, [&](const PeerInfo& peer) { return peer.host_id == self.host_id; });
  if (options.ip.empty() && !together)
    return make_error(Code::kSystemError,
                      fmt::format("rank {} on {} has no network interface for the ranks of other "
                                  "hosts; set TUTTI_IFNAME",
                                  self.rank, self.host));
  TUTTI_TRY_ASSIGN(auto transport,
                   make_tcp_transport(control, {.ip = options.ip.empty() ? "127.0.0.1" : options.ip,
                                                .arena_bytes = arena_bytes(control, options.config),
                                                .log = options.log}));
  return OpenedTransport{std::move(transport)};
}

}  // namespace

std::span<const TransportInfo> all_transports() {
  static const TransportInfo table[] = {
      {"shm", TransportChoice::kShm, Reach::kHost, true, "", open_shm, always},
      {"verbs", TransportChoice::kVerbs, Reach::kNetwork, has_verbs_transport(), "RDMA port",
       open_verbs, has_active_port},
      {"tcp", TransportChoice::kTcp, Reach::kNetwork, true, "", open_tcp, always},
  };
  return table;
}

}  // namespace tutti
