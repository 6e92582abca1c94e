// SPDX-License-Identifier: Apache-2.0
// Seat: where a rank sits in its host, as it can be told to others without the host's graph.
//
// Either processors (those that its thread may use, or a list that the user wrote) or a device by
// name. Plain bytes: exchanged as they are between equal builds. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "topology/graph.hpp"

namespace tutti::topology {

struct Seat {
  static constexpr std::size_t kMostCpus = 2048;

  std::array<std::uint64_t, kMostCpus / 64> cpus{};  // bit c of word c / 64: processor c
  std::array<char, 64> device{};                     // "GPU1", "NUMA 0", a bus id; ends in 0

  [[nodiscard]] std::string_view device_name() const;
  bool operator==(const Seat&) const = default;
};

// Those that the calling thread may use. None where the kernel does not say.
[[nodiscard]] Seat seat_of_this_thread();
// "0-3,8" or a device's name, the `index`-th of those between slashes, in turn where there are
// fewer. "auto": of this thread.
[[nodiscard]] Seat parse_seats(std::string_view text, std::size_t index);

// The device itself, or the smallest one that has all the processors: a core, a cache, a NUMA node,
// a package, the host; also the host where nothing is said. kInvalidArgument: its name is not among
// the host's devices that can compute.
[[nodiscard]] Result<DeviceId> find_seat(const Graph& graph, std::uint32_t host, const Seat& seat);

}  // namespace tutti::topology
