// SPDX-License-Identifier: Apache-2.0
#include "topology/seat.hpp"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/text.hpp"

namespace tutti::topology {
namespace {

bool has_cpu(const Seat& seat, std::size_t cpu) {
  return (seat.cpus[cpu / 64] >> (cpu % 64) & 1) != 0;
}

// "0-3,8-11": false where it is no such list.
bool add_cpus(Seat& seat, std::string_view list) {
  while (!list.empty()) {
    const std::string_view range = list.substr(0, list.find(','));
    if (range.size() + 1 == list.size()) return false;  // ends in a comma
    list.remove_prefix(std::min(list.size(), range.size() + 1));
    const char* const end = range.data() + range.size();
    std::size_t first = 0;
    auto read = std::from_chars(range.data(), end, first);
    std::size_t last = first;
    if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-')
      read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc() || read.ptr != end || last < first || last >= Seat::kMostCpus)
      return false;
    for (std::size_t cpu = first; cpu <= last; ++cpu)
      seat.cpus[cpu / 64] |= std::uint64_t{1} << (cpu % 64);
  }
  return true;
}

std::string_view entry_of(std::string_view text, std::size_t index) {
  const auto entries = static_cast<std::size_t>(std::ranges::count(text, '/')) + 1;
  for (index %= entries; index > 0; --index) text.remove_prefix(text.find('/') + 1);
  return text.substr(0, text.find('/'));
}

bool can_compute(DeviceKind kind) {
  return kind == DeviceKind::kHost || kind == DeviceKind::kPackage || kind == DeviceKind::kNuma ||
         kind == DeviceKind::kCache || kind == DeviceKind::kCore || kind == DeviceKind::kGpu;
}

// Does the device have all the seat's processors? One without any has none.
bool holds(const Device& device, const Seat& seat) {
  for (std::size_t cpu = 0; cpu < Seat::kMostCpus; ++cpu)
    if (has_cpu(seat, cpu) && !holds_cpu(device.cpus, static_cast<std::uint32_t>(cpu)))
      return false;
  return true;
}

}  // namespace

std::string_view Seat::device_name() const {
  return {device.data(), ::strnlen(device.data(), device.size())};
}

Seat seat_of_this_thread() {
  // The kernel refuses a set smaller than its own; none is larger than this.
  constexpr std::size_t kLargestSet = 16384;
  std::array<cpu_set_t, kLargestSet / CPU_SETSIZE> set{};
  Seat seat;
  if (::sched_getaffinity(0, sizeof set, set.data()) != 0) return seat;
  for (std::size_t cpu = 0; cpu < Seat::kMostCpus; ++cpu)
    if (CPU_ISSET_S(cpu, sizeof set, set.data()))
      seat.cpus[cpu / 64] |= std::uint64_t{1} << (cpu % 64);
  return seat;
}

Seat parse_seats(std::string_view text, std::size_t index) {
  const std::string_view entry = entry_of(text, index);
  if (entry == "auto") return seat_of_this_thread();
  Seat seat;
  if (!entry.empty() && add_cpus(seat, entry)) return seat;
  seat = {};
  entry.copy(seat.device.data(), seat.device.size() - 1);
  return seat;
}

Result<DeviceId> find_seat(const Graph& graph, std::uint32_t host, const Seat& seat) {
  const std::string_view name = seat.device_name();
  const bool somewhere =
      std::ranges::any_of(seat.cpus, [](std::uint64_t word) { return word != 0; });
  DeviceId best = kNoDevice;
  for (DeviceId id = 0; id < graph.devices().size(); ++id) {
    const Device& device = graph.device(id);
    if (device.host != host || !can_compute(device.kind)) continue;
    if (!name.empty() && (device.name == name || device.bus_id == name)) return id;
    const bool whole = device.kind == DeviceKind::kHost;
    // A device inside another one follows it.
    if (whole || (name.empty() && somewhere && !device.cpus.empty() && holds(device, seat)))
      best = id;
  }
  if (!name.empty() || best == kNoDevice)
    return make_error(Code::kInvalidArgument,
                      fmt::format("TUTTI_SEATS: the host has no device '{}' to compute on; name "
                                  "one that tutti-info topo shows, or processors such as 0-3,8",
                                  printable(name)));
  return best;
}

}  // namespace tutti::topology
