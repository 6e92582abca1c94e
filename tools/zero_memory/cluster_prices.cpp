// SPDX-License-Identifier: Apache-2.0
#include "cluster_prices.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "base/technology.hpp"
#include "lab/predict.hpp"

namespace tutti::zero_memory {
namespace {

// Predictors of a group and a collective are made when the first price is asked for.
class Prices {
 public:
  Prices(const Cluster& cluster, Profile profile) : profile_(std::move(profile)) {
    Cluster host = cluster;
    host.nodes = 1;
    host.torus = {};
    clusters_ = {cluster, host, between_hosts(cluster)};
  }

  Result<double> price(Group group, Collective collective, std::uint64_t bytes) {
    const std::tuple key(group, collective, bytes);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    const Cluster& cluster = clusters_[static_cast<std::size_t>(group)];
    double best_ns = 0;
    for (const Predictor& predictor : predictors(group, collective)) {
      const auto one = predictor.predict(profile_, bytes);
      if (one && (best_ns == 0 || one->time_ns < best_ns)) best_ns = one->time_ns;
    }
    if (best_ns == 0)
      return make_error(
          Code::kNotSupported,
          fmt::format("profile {} prices no {} of {} bytes among {} ranks of {}", profile_.name,
                      name_of(collective), bytes, cluster.ranks(), cluster.name));
    return known_.emplace(key, best_ns / 1e9).first->second;
  }

 private:
  const std::vector<Predictor>& predictors(Group group, Collective collective) {
    const auto [found, made] = predictors_.try_emplace({group, collective});
    if (made)
      for (const AlgorithmProfile& algorithm : profile_.algorithms) {
        auto one = Predictor::make(clusters_[static_cast<std::size_t>(group)], profile_, algorithm,
                                   collective);
        if (one) found->second.push_back(*std::move(one));
      }
    return found->second;
  }

  Profile profile_;
  std::array<Cluster, 3> clusters_;  // by Group
  std::map<std::pair<Group, Collective>, std::vector<Predictor>> predictors_;
  std::map<std::tuple<Group, Collective, std::uint64_t>, double> known_;
};

}  // namespace

Cluster between_hosts(const Cluster& cluster) {
  Cluster between = cluster;
  const double share = static_cast<double>(cluster.nics_per_node) / cluster.ranks_per_node;
  between.ranks_per_node = 1;
  between.cores_per_node = 0;
  between.nics_per_node = 1;
  between.nic.GBps *= std::min(1.0, share);
  return between;
}

Price cluster_prices(const Cluster& cluster, const Profile& profile) {
  const auto prices = std::make_shared<Prices>(cluster, profile);
  return [prices](Group group, Collective collective, std::uint64_t bytes) {
    return prices->price(group, collective, bytes);
  };
}

double rank_memory_GBps(const Cluster& cluster) {
  if (cluster.gpu == nullptr) return cluster.memory_GBps / cluster.ranks_per_node;
  const auto memory = find_technology(cluster.gpu->memory);
  return memory ? (*memory)->GBps : 0;
}

}  // namespace tutti::zero_memory
