// SPDX-License-Identifier: Apache-2.0
// Network: what a price and a simulation ask of the place where a plan runs.
//
// Ranks 0..ranks()-1 sit on nodes of one or several ranks. A message from one rank to another takes
// a route: its technology, the latency of the way, and the directed links that it crosses, each
// with a bandwidth that all messages on it share. Nothing here knows protocols, steps or sizes:
// what a message costs its ends besides stands in Costs (costs.hpp).
//
// Immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/types.hpp"

namespace tutti {

using LinkId = std::uint32_t;

// Names the parts of a message's path: ends of one technology have one set of costs.
enum class Hop : std::uint8_t {
  kShared,   // memory of one host
  kDevice,   // between accelerators of one node (NVLink, xGMI, PCIe peer to peer)
  kNetwork,  // between nodes
};
inline constexpr int kHopCount = 3;

struct Route {
  static constexpr std::size_t kMostLinks = 12;
  Hop hop = Hop::kShared;
  double latency_ns = 0;  // of the way alone: wires, switches
  // A message alone does not exceed this, whatever its links carry: of one connection, one port.
  double ns_per_byte = 0;
  std::uint8_t link_count = 0;
  std::array<LinkId, kMostLinks> link_ids{};

  [[nodiscard]] std::span<const LinkId> links() const { return {link_ids.data(), link_count}; }
};

class Network {
 public:
  virtual ~Network() = default;

  [[nodiscard]] virtual std::int32_t ranks() const = 0;
  // By LinkId; 0: no limit. Links are numbered node by node: with block() > 0, node k's are the ids
  // [k*n, (k+1)*n) for one n.
  [[nodiscard]] virtual std::span<const double> link_ns_per_byte() const = 0;
  // from != to, both in range. O(1).
  [[nodiscard]] virtual Route route(Rank from, Rank to) const = 0;

  // Ranks of a node where all nodes are alike and any permutation of the nodes (ranks
  // [k*block, (k+1)*block) together) leaves every route as it was; 0 where that is not so. Divides
  // ranks().
  [[nodiscard]] virtual Rank block() const = 0;
  // Ranks whose steps share one set of workers (cores of a host), and how many there are:
  // rank r uses pool r / pool_ranks(). pool_workers() >= pool_ranks(): every rank has its own.
  [[nodiscard]] virtual std::int32_t pool_ranks() const = 0;
  [[nodiscard]] virtual std::int32_t pool_workers() const = 0;
};

}  // namespace tutti
