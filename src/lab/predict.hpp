// SPDX-License-Identifier: Apache-2.0
// How long an implementation's algorithm takes on a described cluster: a schedule with the
// algorithm's structure, priced with the profile's constants at the protocol and the cut that serve
// best.
//
// With profile.rails data is cut over the NICs of a node, each with a ring or tree of its own that
// enters and leaves nodes there. They are alike and share the GPUs' links evenly, so one is priced,
// with its share of data and links.
// Not shared between threads while priced.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "lab/cluster_network.hpp"
#include "lab/event_price.hpp"
#include "lab/profile.hpp"

namespace tutti {

struct Prediction {
  double time_ns = 0;
  std::size_t protocol = 0;  // index into the profile's
  std::uint32_t slices = 1;
  PlanPrice price;
};

class Predictor {
 public:
  // kInvalidArgument, kNotSupported where the algorithm's schedule does not serve the cluster.
  [[nodiscard]] static Result<Predictor> make(const Cluster& cluster, const Profile& profile,
                                              const AlgorithmProfile& algorithm,
                                              Collective collective);

  // bytes: of the collective, per rank (of all ranks together where ranks hold shards). The profile
  // may have other constants than at make(). `protocol`: of this name alone; empty: the cheapest of
  // those that serve the size. kInvalidArgument where none does.
  [[nodiscard]] Result<Prediction> predict(const Profile& profile, std::uint64_t bytes,
                                           std::string_view protocol = {}) const;

  // The same at the protocol and the cut that predict() takes, run by the flow simulator.
  [[nodiscard]] Result<Prediction> simulate(const Profile& profile, std::uint64_t bytes) const;

  [[nodiscard]] const std::string& schedule() const { return schedule_; }
  [[nodiscard]] const ClusterNetwork& network() const { return *network_; }
  [[nodiscard]] std::uint32_t rails() const { return rails_; }

 private:
  Predictor(std::unique_ptr<ClusterNetwork> network, PlanModel model)
      : network_(std::move(network)), model_(std::move(model)) {}
  struct Cut {
    double rail_bytes;
    std::uint32_t slots;
    bool pipelined;
  };
  [[nodiscard]] static std::vector<double> key_of(const ProtocolProfile& protocol,
                                                  const Costs& costs, const Cut& cut);
  [[nodiscard]] Result<Prediction> at_best_cut(const ProtocolProfile& protocol, Costs costs,
                                               const Cut& cut) const;

  std::string algorithm_, schedule_;
  std::unique_ptr<ClusterNetwork> network_;  // of one rail; the model refers to it
  PlanModel model_;
  ScheduleShape shape_;
  std::uint32_t rails_ = 1;
  mutable std::map<std::vector<double>, Prediction> known_;  // by all that they rest on
};

// "{nodes}" and "{local}" of a profile's schedule filled in.
[[nodiscard]] std::string schedule_for(const AlgorithmProfile& algorithm, const Cluster& cluster);
// A rail's share of a cluster: one NIC a node and its part of the links inside.
[[nodiscard]] Cluster rail_of(const Cluster& cluster, std::uint32_t rails);

}  // namespace tutti
