// SPDX-License-Identifier: Apache-2.0
// The network of a described cluster (topology/cluster.hpp): rank = node * ranks_per_node + local.
//
//   inside a node   accelerators: each GPU's links out and its links in, or, in a mesh, a link for
//                   each ordered pair, of its share; host ranks: the memory of the node
//   between nodes   out of NIC local(from) % nics and into NIC local(to) % nics, no wider than
//                   their PCIe; up and down at each level of switches that the way crosses, where
//                   the level is oversubscribed; or along the dimensions of a torus, in order
//
// A link at full bandwidth behind NICs that cannot fill it is left out, as it never limits. A way
// through a torus of more links than a Route holds is told by some of them, evenly spaced.
// Immutable; any thread.
#pragma once

#include <vector>

#include "model/network.hpp"
#include "topology/cluster.hpp"

namespace tutti {

class ClusterNetwork final : public Network {
 public:
  // A cluster as parse_cluster() and resize() return it.
  explicit ClusterNetwork(Cluster cluster);

  [[nodiscard]] const Cluster& cluster() const { return cluster_; }

  [[nodiscard]] std::int32_t ranks() const override { return cluster_.ranks(); }
  [[nodiscard]] std::span<const double> link_ns_per_byte() const override { return links_; }
  [[nodiscard]] Route route(Rank from, Rank to) const override;
  [[nodiscard]] Rank block() const override { return block_; }
  [[nodiscard]] std::int32_t pool_ranks() const override;
  [[nodiscard]] std::int32_t pool_workers() const override;

 private:
  // Both ends of a message.
  struct Way {
    std::int32_t from_node, from, to_node, to;  // node and index in it
  };
  void add_node_links();
  void add_group_links();
  void route_inside(const Way& way, Route& route) const;
  void route_between(const Way& way, Route& route) const;
  void add_switches(const Way& way, Route& route) const;
  // Returns the number of hops.
  std::int32_t add_torus(const Way& way, Route& route) const;
  [[nodiscard]] LinkId link(std::int32_t node, std::int32_t index) const;

  Cluster cluster_;
  std::int32_t links_per_node_ = 0;
  std::int32_t first_nic_ = 0, first_torus_ = 0;  // index of a link within its node's
  std::vector<LinkId> first_group_;               // by level; 0: never limits
  std::int32_t rails_ = 1;
  double nic_ns_per_byte_ = 0;
  Rank block_ = 0;
  std::vector<double> links_;
};

}  // namespace tutti
