// SPDX-License-Identifier: Apache-2.0
// The network of a discovered graph (topology/graph.hpp) and of ranks that sit on its devices.
//
//   inside a host    the graph's way between the two devices, link by link; between cores no faster
//                    than one core copies at that distance
//   between hosts    to the nearest NIC of the rank's host, the ranks that it is nearest to in turn
//                    where several are as near; over the switches; and from the NIC of the other
//                    host that is nearest to the peer among those that the first one can reach
//
// A way of more links than a Route holds keeps its narrowest. Immutable; any thread.
#pragma once

#include <map>
#include <vector>

#include "model/network.hpp"
#include "topology/graph.hpp"
#include "topology/path.hpp"

namespace tutti {

class GraphNetwork final : public Network {
 public:
  // Switches whose ways to each other are kept; a network with more is described by a cluster file
  // (cluster_network.hpp).
  static constexpr std::size_t kMostSwitches = 512;

  // devices[r]: where rank r sits: a core, GPU, cache, NUMA node, package or host.
  // kInvalidArgument: no ranks, a device that is not in the graph or cannot compute, two ranks
  // without a way between them. kNotSupported: more than kMostSwitches.
  [[nodiscard]] static Result<GraphNetwork> make(const topology::Graph& graph,
                                                 std::span<const topology::DeviceId> devices);

  [[nodiscard]] std::int32_t ranks() const override {
    return static_cast<std::int32_t>(seats_.size());
  }
  [[nodiscard]] std::span<const double> link_ns_per_byte() const override { return links_; }
  [[nodiscard]] Route route(Rank from, Rank to) const override;
  [[nodiscard]] Rank block() const override { return block_; }
  [[nodiscard]] std::int32_t pool_ranks() const override { return pool_ranks_; }
  [[nodiscard]] std::int32_t pool_workers() const override { return pool_workers_; }

 private:
  friend class GraphNetworkBuilder;
  // A part of a way, of any number of links.
  struct Part {
    double latency_ns = 0;
    double ns_per_byte = 0;
    std::vector<LinkId> links = {};
    bool exists = false;
  };
  struct Seat {
    std::uint32_t host = 0;
    std::size_t local = 0;              // index among the host's ranks
    std::uint32_t network = 0;          // which of the networks it sends over
    std::vector<Part> out, in;          // by network: to the switch and from it
    std::vector<std::size_t> switches;  // by network: the one its NIC is plugged into
  };
  GraphNetwork() = default;

  std::vector<Seat> seats_;                 // by rank
  std::vector<std::vector<Route>> inside_;  // by host: of local ranks, from * count + to
  std::vector<std::size_t> counts_;         // by host
  std::vector<Part> between_;               // of switches, from * count + to
  std::size_t switches_ = 0;
  std::vector<double> links_;
  Rank block_ = 0;
  std::int32_t pool_ranks_ = 1, pool_workers_ = 1;
};

}  // namespace tutti
