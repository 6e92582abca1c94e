// SPDX-License-Identifier: Apache-2.0
// The price that chooses against the price of the tools: counts of a schedule weighed, and a walk
// through all its steps, with the costs that both know.
//
// Only the first knows what a byte of a message costs beside that of an operand, and how long a
// message between hosts keeps a core; these are nought here. Each rank has a core.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/event_price.hpp"
#include "model/host_costs.hpp"
#include "model/price.hpp"
#include "networks.hpp"
#include "tests/algorithms/direct_forms.hpp"
#include "tests/sanitizers.hpp"

namespace tutti {
namespace {

// Neither price is more than so many times the other, at any size.
constexpr double kMostApart = 2;

constexpr std::uint64_t kSizes[] = {8,       64,      1 << 10,  8 << 10, 64 << 10,
                                    1 << 20, 8 << 20, 64 << 20, 1 << 30};
// RDMA, TCP; messages within a host know neither.
constexpr LinkCost kWires[] = {{.alpha_ns = 2'000, .beta_ns_per_byte = 0.085},
                               {.alpha_ns = 16'000, .beta_ns_per_byte = 0.32}};

// Equal hosts of `node` ranks.
struct Place {
  std::int32_t ranks, node;
  LinkCost wire;
  [[nodiscard]] std::vector<std::int32_t> hosts() const {
    std::vector<std::int32_t> hosts;
    for (Rank rank = 0; rank < ranks; ++rank) hosts.push_back(rank / node);
    return hosts;
  }
  [[nodiscard]] networks::Nodes network() const {
    return networks::Nodes({.ranks = ranks,
                            .node = node,
                            .adapters = 1,
                            .inside_ns = 0,
                            .between_ns = 0,
                            .inside_ns_per_byte = 0,
                            .between_ns_per_byte = wire.beta_ns_per_byte});
  }
};

std::vector<Place> places() {
  std::vector<Place> all;
  for (const std::int32_t ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32}) {
    all.push_back({ranks, ranks, {}});
    for (const LinkCost& wire : kWires) {
      if (ranks > 1) all.push_back({ranks, 1, wire});
      if (ranks >= 8 && ranks % 4 == 0) all.push_back({ranks, ranks / 4, wire});
    }
  }
  return all;
}

// A protocol and its shape, as choice tries them.
struct Way {
  std::string_view name;
  HostCosts costs;
  std::uint32_t replicas;
  std::uint64_t message_bytes;  // the most
  bool remote = false;

  [[nodiscard]] std::uint32_t slices(const ScheduleCounts& counts, std::uint64_t bytes) const {
    const std::uint64_t message =
        (bytes + counts.chunks - 1) / counts.chunks * counts.max_message_chunks;
    return static_cast<std::uint32_t>(
        std::max<std::uint64_t>(1, (message + message_bytes - 1) / message_bytes));
  }
  [[nodiscard]] Costs on(const LinkCost& wire) const {
    Costs same{.step_ns = costs.step_ns,
               .operand_ns_per_byte = costs.beta_ns_per_byte,
               .remote_ns = costs.remote_ns,
               .remote_ns_per_byte = costs.remote_ns_per_byte};
    same.hops[static_cast<std::size_t>(Hop::kShared)].alpha_ns = costs.alpha_ns;
    same.hops[static_cast<std::size_t>(Hop::kNetwork)].alpha_ns = wire.alpha_ns;
    return same;
  }
};

std::vector<Way> ways() {
  CostSet costs = prior_costs();
  for (const CostSetMember& member : kCostSetMembers) (costs.*member.costs).message_ns_per_byte = 0;
  return {{"flagged", costs.flagged, 1, 7936},
          {"slots of 256K", costs.slotted, 1, 256 << 10},
          {"2 x slots of 16K", costs.slotted, 2, 16 << 10},
          {"2 x slots of 128K", costs.slotted, 2, 128 << 10},
          {"slots of 512K", costs.slotted, 1, 512 << 10},
          {"direct", costs.mapped, 1, std::uint64_t{1} << 40, true}};
}

// The ratios that lie farthest from 1 to either side, and where.
struct Extremes {
  double least = 1, most = 1;
  std::string at_least = "everywhere", at_most = "everywhere";
  void take(double ratio, const std::string& at) {
    if (ratio < least) least = ratio, at_least = at;
    if (ratio > most) most = ratio, at_most = at;
  }
};

void compare(const Algorithm& algorithm, const Problem& problem, const Place& place,
             Extremes& extremes) {
  const ScheduleCounts counts = count_schedule(algorithm, problem, place.hosts()).value();
  const networks::Nodes network = place.network();
  for (const Way& way : ways()) {
    if (way.remote != (counts.total_remotes > 0)) continue;
    const PlanModel model = PlanModel::make(algorithm, problem, network, way.replicas).value();
    for (const std::uint64_t bytes : kSizes) {
      const std::uint32_t slices = way.slices(counts, bytes);
      const double counted =
          PlanPrices(counts, way.costs,
                     {.replicas = way.replicas, .cores = place.ranks, .wire = place.wire})
              .at(bytes, slices)
              .time_ns;
      const double walked =
          model.price(way.on(place.wire), {.bytes = bytes, .slices = slices, .most_slices = 32})
              .value()
              .time_ns;
      extremes.take(walked / counted,
                    fmt::format("{} of {} bytes, {} ranks on hosts of {}, {}, wire {} ns",
                                name_of(problem.collective), bytes, place.ranks, place.node,
                                way.name, place.wire.alpha_ns));
    }
  }
}

TEST(TwoPrices, AreNeverFarApart) {
  for (const Algorithm* algorithm : test::every_form()) {
    Extremes extremes;
    int problems = 0;
    for (const Place& place : places())
      for (std::size_t c = 1; c < kCollectiveCount; ++c) {
        const Problem problem{.collective = static_cast<Collective>(c), .ranks = place.ranks};
        if (!algorithm->supports(problem)) continue;
        if (!test::kSanitized || problems++ % 24 == 0)
          compare(*algorithm, problem, place, extremes);
      }
    fmt::print("{}: walked over counted {:.2f} ({}) to {:.2f} ({})\n", algorithm->name,
               extremes.least, extremes.at_least, extremes.most, extremes.at_most);
    EXPECT_GE(extremes.least, 1 / kMostApart) << algorithm->name << ": " << extremes.at_least;
    EXPECT_LE(extremes.most, kMostApart) << algorithm->name << ": " << extremes.at_most;
  }
}

}  // namespace
}  // namespace tutti
