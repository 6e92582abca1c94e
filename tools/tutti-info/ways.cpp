// SPDX-License-Identifier: Apache-2.0
#include "ways.hpp"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>

#include "control/interfaces.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace tutti::info {
namespace {

using control::NetworkInterface;

std::string name_of(const TcpAddress& address, const std::vector<NetworkInterface>& interfaces) {
  for (const NetworkInterface& interface : interfaces)
    for (const TcpAddress& own : interface.addresses)
      if (own.ip_text() == address.ip_text()) return interface.name;
  return "?";
}

// "tcp at 10.0.0.1 (eth0), ..."; or why there is no way.
std::string tcp_text(const Config& config) {
  const auto interfaces = control::list_interfaces();
  if (!interfaces) return "none: " + interfaces.error().message;
  const auto chosen = control::choose_interface(*interfaces, config.interfaces);
  if (!chosen) return "none: " + chosen.error().message;
  if (!*chosen) return "none: no network interface is up but the loopback; set TUTTI_IFNAME";
  return fmt::format("tcp at {} ({}), {}", (*chosen)->ip_text(), name_of(**chosen, *interfaces),
                     config.interfaces.empty() ? "the first interface that is up"
                                               : "as TUTTI_IFNAME=" + config.interfaces + " says");
}

Result<std::string> verbs_text(const Config& config) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) limit.rlim_cur = RLIM_INFINITY;
  TUTTI_TRY_ASSIGN(std::vector<VerbsPort> ports,
                   verbs_ports({.hca = config.ib_hca, .gid_index = config.ib_gid_index}));
  const bool unlimited = limit.rlim_cur == RLIM_INFINITY;
  return rdma_text({std::move(ports), unlimited ? kNoLimit : limit.rlim_cur}, config);
}

std::string far_text(const Config& config) {
  switch (config.transport) {
    case TransportChoice::kShm:
      return "none, because TUTTI_TRANSPORT=shm";
    case TransportChoice::kTcp:
      return tcp_text(config);
    case TransportChoice::kVerbs: {
      const Result<std::string> verbs = verbs_text(config);
      return verbs ? *verbs : "none: " + verbs.error().message;
    }
    case TransportChoice::kAuto:
      break;
  }
  const Result<std::string> verbs = verbs_text(config);
  const std::string tcp = tcp_text(config);
  if (verbs)
    return *verbs +
           ", if every other rank has such a port and can lock its memory, too; otherwise " + tcp;
  return fmt::format("{}; no RDMA: {}", tcp, verbs.error().message);
}

}  // namespace

Result<std::string> rdma_text(const RdmaHere& here, const Config& config) {
  const auto chosen = std::ranges::find_if(here.ports, &VerbsPort::usable);
  if (chosen == here.ports.end())
    return make_error(Code::kSystemError,
                      config.ib_hca.empty()
                          ? "no active RDMA port"
                          : "no active RDMA port among TUTTI_IB_HCA=" + config.ib_hca);
  return fmt::format(
      "verbs at {}, if this rank can lock its memory ('ulimit -l': {})", text_of(*chosen),
      here.lockable_bytes == kNoLimit ? std::string("unlimited")
                                      : fmt::format("{} KiB", here.lockable_bytes / 1024));
}

std::vector<Fact> way_facts(const Config& config) {
  return {{"within a host",
           forces_wire(config.transport)
               ? fmt::format("{0}, because TUTTI_TRANSPORT={0}", name_of(config.transport))
               : "shm, since its ranks can share memory"},
          {"between hosts", far_text(config)}};
}

}  // namespace tutti::info
