#include "ways.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/control/interfaces.hpp"

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

}  // namespace

std::vector<Fact> way_facts(const Config& config) {
  const bool forced_tcp = config.transport == TransportChoice::kTcp;
  const bool forced_shm = config.transport == TransportChoice::kShm;
  return {{"within a host", forced_tcp ? "tcp, as TUTTI_TRANSPORT=tcp says"
                                       : "shm, since its ranks can share memory"},
          {"between hosts", forced_shm ? "none, as TUTTI_TRANSPORT=shm says" : tcp_text(config)}};
}

}  // namespace tutti::info
