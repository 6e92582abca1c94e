// SPDX-License-Identifier: Apache-2.0
#include "control/interfaces.hpp"

#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/tcp_socket.hpp"
#include "base/text.hpp"

namespace tutti::control {
namespace {

std::optional<TcpAddress> usable_address(const sockaddr* name) {
  const std::optional<TcpAddress> address = name ? tcp::address_of(name) : std::nullopt;
  if (!address || !address->v6) return address;
  in6_addr ip{};
  std::memcpy(&ip, address->ip.data(), sizeof ip);
  if (IN6_IS_ADDR_LINKLOCAL(&ip)) return std::nullopt;
  return address;
}

struct Wish {
  bool exclude = false;
  bool exact = false;
  std::vector<std::string_view> names;
};

Wish parse_wish(std::string_view text) {
  Wish wish;
  wish.exclude = text.starts_with('^');
  if (wish.exclude) text.remove_prefix(1);
  wish.exact = text.starts_with('=');
  if (wish.exact) text.remove_prefix(1);
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) wish.names.push_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return wish;
}

bool usable(const NetworkInterface& interface) {
  return interface.up && !interface.addresses.empty();
}

// Recognises networks of this host's containers and virtual machines, which have the same addresses
// elsewhere.
bool is_bridge(const NetworkInterface& interface) {
  return interface.name.starts_with("docker") || interface.name.starts_with("virbr");
}

const NetworkInterface* choose_unasked(const std::vector<NetworkInterface>& interfaces) {
  for (const bool bridges : {false, true}) {
    for (const NetworkInterface& interface : interfaces) {
      const bool fits = !interface.loopback && is_bridge(interface) == bridges;
      if (fits && usable(interface)) return &interface;
    }
  }
  return nullptr;
}

const NetworkInterface* choose_asked(const std::vector<NetworkInterface>& interfaces,
                                     const Wish& wish) {
  const auto named = [&](const NetworkInterface& interface, std::string_view name) {
    return wish.exact ? interface.name == name : interface.name.starts_with(name);
  };
  if (wish.names.empty()) return nullptr;
  if (wish.exclude) {
    const auto found = std::ranges::find_if(interfaces, [&](const NetworkInterface& interface) {
      return usable(interface) && !interface.loopback &&
             std::ranges::none_of(wish.names,
                                  [&](std::string_view name) { return named(interface, name); });
    });
    return found == interfaces.end() ? nullptr : &*found;
  }
  for (const std::string_view name : wish.names) {
    const auto found = std::ranges::find_if(interfaces, [&](const NetworkInterface& interface) {
      return usable(interface) && named(interface, name);
    });
    if (found != interfaces.end()) return &*found;
  }
  return nullptr;
}

// "lo (127.0.0.1 ::1), eth0 (down)"
std::string describe(const std::vector<NetworkInterface>& interfaces) {
  std::string text;
  for (const NetworkInterface& interface : interfaces) {
    std::string state = interface.up ? "" : "down";
    for (const TcpAddress& address : interface.addresses) {
      state += fmt::format("{}{}", state.empty() ? "" : " ", address.ip_text());
    }
    if (state.empty()) state = "no address";
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", interface.name, state);
  }
  return text.empty() ? "none" : text;
}

}  // namespace

Result<std::vector<NetworkInterface>> list_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return errno_error("cannot list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<NetworkInterface> interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    auto known = std::ranges::find(interfaces, entry->ifa_name, &NetworkInterface::name);
    if (known == interfaces.end()) {
      constexpr unsigned kUp = IFF_UP | IFF_RUNNING;
      interfaces.push_back({.name = entry->ifa_name,
                            .up = (entry->ifa_flags & kUp) == kUp,
                            .loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0});
      known = std::prev(interfaces.end());
    }
    if (const auto address = usable_address(entry->ifa_addr)) known->addresses.push_back(*address);
  }
  for (NetworkInterface& interface : interfaces) {
    std::stable_partition(interface.addresses.begin(), interface.addresses.end(),
                          [](const TcpAddress& address) { return !address.v6; });
  }
  return interfaces;
}

std::optional<std::string> loopback_choice() {
  const auto interfaces = list_interfaces();
  if (!interfaces) return std::nullopt;
  for (const NetworkInterface& each : *interfaces)
    if (each.loopback && each.up && !each.addresses.empty()) return "=" + each.name;
  return std::nullopt;
}

Result<std::optional<TcpAddress>> choose_interface(const std::vector<NetworkInterface>& interfaces,
                                                   std::string_view wanted) {
  const NetworkInterface* const chosen =
      wanted.empty() ? choose_unasked(interfaces) : choose_asked(interfaces, parse_wish(wanted));
  if (chosen != nullptr) return chosen->addresses.front();
  if (wanted.empty()) return std::nullopt;
  return make_error(Code::kInvalidArgument,
                    fmt::format("TUTTI_IFNAME={}: no interface of that kind is up and has an IP "
                                "address; present: {}",
                                printable(wanted, 128), describe(interfaces)));
}

Result<std::optional<TcpAddress>> choose_interface(std::string_view wanted) {
  const auto interfaces = list_interfaces();
  if (interfaces) return choose_interface(*interfaces, wanted);
  if (wanted.empty()) return std::nullopt;
  return tl::unexpected(interfaces.error());
}

}  // namespace tutti::control
