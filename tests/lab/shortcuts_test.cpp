// SPDX-License-Identifier: Apache-2.0
// The shortcuts of the price, representatives and left-out rounds, against the walk of every rank
// and every slice.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "lab/event_price.hpp"
#include "model/event_graph.hpp"
#include "networks.hpp"
#include "tests/algorithms/direct_forms.hpp"

namespace tutti {
namespace {

using networks::Nodes;
using networks::Shape;

struct Place {
  const char* name;
  Shape shape;  // without ranks
};

const Place kPlaces[] = {
    {"uniform", {}},
    {"ports", {.adapters = 1}},
    {"nodes of 4, 1 adapter", {.node = 4, .adapters = 1}},
    {"nodes of 8, 2 adapters", {.node = 8, .adapters = 2}},
    {"nodes of 8, 4 adapters, a bus", {.node = 8, .adapters = 4, .bus = true}},
    {"nodes of 4 on 3 cores", {.node = 4, .adapters = 2, .workers = 3}},
    {"nodes of 8 on 2 cores, a bus", {.node = 8, .adapters = 1, .bus = true, .workers = 2}},
};

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Algorithm* algorithm : all_algorithms()) all.emplace_back(algorithm->name);
  for (const Algorithm* algorithm : test::direct_forms(Collective::kAllReduce))
    all.emplace_back(algorithm->name);
  return all;
}

std::string test_name(const testing::TestParamInfo<std::string>& of) {
  std::string name = of.param;
  std::ranges::replace_if(
      name, [](char c) { return c == ':' || c == '='; }, '_');
  return name;
}

Nodes network_of(const Place& place, std::int32_t ranks) {
  Shape shape = place.shape;
  shape.ranks = ranks;
  return Nodes(shape);
}

PlanPrice priced(const PlanModel& model, const PriceRequest& request) {
  const Result<PlanPrice> price = model.price(networks::costs(), request);
  EXPECT_TRUE(price) << price.error().message;
  return price.value_or(PlanPrice{});
}

PlanModel model_of(std::string_view name, const Nodes& network, std::uint32_t replicas,
                   bool every_rank) {
  return PlanModel::make(*find_algorithm(name).value(),
                         {.collective = Collective::kAllReduce, .ranks = network.ranks()}, network,
                         replicas, every_rank)
      .value();
}

void expect_same(const PlanPrice& fast, const PlanPrice& full, const std::string& where) {
  EXPECT_NEAR(fast.time_ns, full.time_ns, 1e-9 * full.time_ns) << where;
  EXPECT_NEAR(fast.total_events, full.total_events, 1e-9 * full.total_events) << where;
}

// By ranks and place.
class AtRanks : public testing::TestWithParam<std::tuple<std::int32_t, std::size_t>> {};

TEST_P(AtRanks, RepresentativesStandForAll) {
  const auto [p, number] = GetParam();
  const Place& place = kPlaces[number];
  const Nodes network = network_of(place, p);
  int reduced = 0;
  for (const std::string& name : names()) {
    const PlanModel fast = model_of(name, network, 1, false);
    if (fast.graph().represented == 1) continue;
    ++reduced;
    const PlanModel full = model_of(name, network, 1, true);
    for (const std::uint64_t bytes : {64U, 1U << 20})
      for (const std::uint32_t slices : {1U, 2U}) {
        const PriceRequest request{.bytes = bytes, .slices = slices, .full = true};
        expect_same(priced(fast, request), priced(full, request),
                    name + ", " + std::to_string(bytes) + " bytes");
      }
  }
  EXPECT_EQ(reduced > 0, p > place.shape.node);
}

INSTANTIATE_TEST_SUITE_P(Representatives, AtRanks,
                         testing::Combine(testing::Values(8, 16, 24, 32, 40, 64, 96),
                                          testing::Range(std::size_t{0}, std::size(kPlaces))));

// The largest that are compared, with one slice of one size.
class Large : public testing::TestWithParam<std::string> {};

TEST_P(Large, RepresentativesStandForAll) {
  const Nodes network = network_of(kPlaces[3], 256);
  const PlanModel fast = model_of(GetParam(), network, 1, false);
  const PlanModel full = model_of(GetParam(), network, 1, true);
  const PriceRequest request{.bytes = 1 << 20, .full = true};
  expect_same(priced(fast, request), priced(full, request), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Representatives, Large, testing::ValuesIn(names()), test_name);

// The product of moves of groups and of members, and nodes larger and smaller than groups.
TEST(Representatives, OfHierarchies) {
  for (const char* name :
       {"hierarchical:groups=6x8", "hierarchical:inner=ring:outer=tree:groups=6x8",
        "hierarchical:groups=3x16", "hierarchical:groups=12x4",
        "hierarchical:groups=8x6:inner=ring:outer=ring",
        "hierarchical:form=leader:outer=ring:inner=tree:groups=6x8",
        "hierarchical:inner=rabenseifner:outer=circulant:groups=3x16"})
    for (const Place& place : kPlaces) {
      const Nodes network = network_of(place, 48);
      const PlanModel fast = model_of(name, network, 2, false);
      const PlanModel full = model_of(name, network, 2, true);
      const PriceRequest request{.bytes = 100000, .slices = 5, .full = true};
      expect_same(priced(fast, request), priced(full, request),
                  std::string(name) + ", " + place.name);
    }
}

TEST(Representatives, AreOneNodeOfAll) {
  const auto represented = [](std::string_view name, const Shape& shape) {
    return model_of(name, Nodes(shape), 1, false).graph().represented;
  };
  EXPECT_EQ(represented("ring", {.ranks = 64, .node = 8, .adapters = 1}), 8);
  EXPECT_EQ(represented("ring", {.ranks = 64}), 64);
  EXPECT_EQ(represented("butterfly", {.ranks = 64, .node = 8, .adapters = 1}), 8);
  EXPECT_EQ(represented("butterfly", {.ranks = 48, .node = 8, .adapters = 1}), 2);  // folded
  EXPECT_EQ(represented("butterfly", {.ranks = 40, .node = 8, .adapters = 1}), 1);
  EXPECT_EQ(represented("tree", {.ranks = 64, .node = 8, .adapters = 1}), 1);
  EXPECT_EQ(represented("ring", {.ranks = 64, .node = 8, .alike = false}), 1);
  EXPECT_EQ(represented("hierarchical:groups=4x16", {.ranks = 64, .node = 8, .adapters = 1}), 8);
}

// Many slices: what a period adds, once found, against walking them all.
class OfFamily : public testing::TestWithParam<std::string> {};

TEST_P(OfFamily, RoundsRepeat) {
  int shorter = 0;
  for (const Place& place : kPlaces)
    for (const std::uint32_t replicas : {1U, 2U}) {
      const Nodes network = network_of(place, 16);
      const PlanModel model = model_of(GetParam(), network, replicas, false);
      for (const std::uint64_t bytes : {1000U, 1U << 22})
        for (const std::uint32_t slices : {7U, 100U, 257U}) {
          PriceRequest request{.bytes = bytes, .slices = slices, .slots = 3};
          const PlanPrice fast = priced(model, request);
          request.full = true;
          const PlanPrice full = priced(model, request);
          const std::string where = std::string(place.name) + ", " + std::to_string(replicas) +
                                    " replicas, " + std::to_string(slices) + " slices of " +
                                    std::to_string(bytes) + " bytes";
          expect_same(fast, full, where);
          EXPECT_EQ(static_cast<double>(full.events) * model.graph().represented, full.total_events)
              << where;
          EXPECT_NEAR(fast.terms.queue_ns, full.terms.queue_ns, 1e-6 * full.time_ns) << where;
          EXPECT_NEAR(fast.terms.operands_ns, full.terms.operands_ns, 1e-6 * full.time_ns) << where;
          if (fast.events < full.events) ++shorter;
        }
    }
  // Its levels run ahead of each other, each at a pace of its own, so that no period is theirs all.
  EXPECT_GE(shorter, GetParam() == "hierarchical" ? 0 : 14);
}

// Fewer slices than there are, and the rest as the later half of them.
TEST_P(OfFamily, AFewSlicesTellOfMany) {
  const Nodes network = network_of(kPlaces[3], 16);
  const PlanModel model = model_of(GetParam(), network, 2, false);
  for (const std::uint64_t bytes : {1000U, 1U << 22}) {
    PriceRequest request{.bytes = bytes, .slices = 500};
    const PlanPrice all = priced(model, request);
    request.most_slices = 64;
    const PlanPrice few = priced(model, request);
    EXPECT_NEAR(few.time_ns, all.time_ns, 0.01 * all.time_ns);
    EXPECT_EQ(few.total_events, all.total_events);
    EXPECT_LE(few.events, 96 / 500.0 * all.total_events);
    EXPECT_NEAR(few.terms.operands_ns, all.terms.operands_ns, 0.05 * all.time_ns);
  }
}

INSTANTIATE_TEST_SUITE_P(Slices, OfFamily, testing::ValuesIn(names()), test_name);

}  // namespace
}  // namespace tutti
