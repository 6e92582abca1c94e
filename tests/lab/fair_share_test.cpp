// SPDX-License-Identifier: Apache-2.0
// Max-min fair rates against cases worked out by hand, and against filling done slowly.
#include "lab/fair_share.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace tutti {
namespace {

constexpr double kNoLimit = FairShare::kNoLimit;
using Links = std::vector<LinkId>;

TEST(FairShare, OneLinkIsSharedAlike) {
  FairShare shares({12});
  const auto a = shares.add(Links{0}, kNoLimit), b = shares.add(Links{0}, kNoLimit);
  const auto c = shares.add(Links{0}, 2);
  shares.update();
  EXPECT_EQ(shares.rate(a), 5);
  EXPECT_EQ(shares.rate(b), 5);
  EXPECT_EQ(shares.rate(c), 2);
}

// The textbook's line: who crosses the narrow link leaves the rest of the wide one to the other.
TEST(FairShare, OfALineOfLinks) {
  FairShare shares({1, 2});
  const auto both = shares.add(Links{0, 1}, kNoLimit);
  const auto narrow = shares.add(Links{0}, kNoLimit), wide = shares.add(Links{1}, kNoLimit);
  shares.update();
  EXPECT_EQ(shares.rate(both), 0.5);
  EXPECT_EQ(shares.rate(narrow), 0.5);
  EXPECT_EQ(shares.rate(wide), 1.5);
  shares.remove(narrow);
  const auto changed = shares.update();
  EXPECT_EQ(shares.rate(both), 1);
  EXPECT_EQ(shares.rate(wide), 1);
  EXPECT_EQ(changed.size(), 2U);
}

// Four senders, each with a port of 10, into one port of 10, and one that sends elsewhere as well.
TEST(FairShare, OfIncast) {
  FairShare shares({10, 10, 10, 10, 10, 10});  // out 0..3, in 4..5
  std::vector<FairShare::FlowId> into;
  for (LinkId out = 0; out < 4; ++out) into.push_back(shares.add(Links{out, 4}, kNoLimit));
  const auto aside = shares.add(Links{0, 5}, kNoLimit);
  shares.update();
  for (const auto flow : into) EXPECT_EQ(shares.rate(flow), 2.5);
  EXPECT_EQ(shares.rate(aside), 7.5);
}

TEST(FairShare, OfALinkThatIsCrossedTwice) {
  FairShare shares({12});
  const auto twice = shares.add(Links{0, 0}, kNoLimit), once = shares.add(Links{0}, kNoLimit);
  shares.update();
  EXPECT_EQ(shares.rate(twice), 4);
  EXPECT_EQ(shares.rate(once), 4);
}

TEST(FairShare, WithoutLinksIsTheLimit) {
  FairShare shares({kNoLimit});
  const auto limited = shares.add(Links{0}, 3), none = shares.add({}, 7);
  shares.update();
  EXPECT_EQ(shares.rate(limited), 3);
  EXPECT_EQ(shares.rate(none), 7);
}

TEST(FairShare, TouchesOnlyWhatIsConnected) {
  FairShare shares({4, 4});
  shares.add(Links{0}, kNoLimit);
  const auto other = shares.add(Links{1}, kNoLimit);
  EXPECT_EQ(shares.update().size(), 2U);
  const auto third = shares.add(Links{1}, kNoLimit);
  const auto changed = shares.update();
  EXPECT_EQ(changed.size(), 2U);
  EXPECT_EQ(shares.rate(other), 2);
  EXPECT_EQ(shares.rate(third), 2);
  EXPECT_TRUE(shares.update().empty());
}

struct Flow {
  Links links;
  double most;
};

// Everybody grows by the least that fills a link or reaches a limit; again and again.
std::vector<double> filled_slowly(const std::vector<double>& capacities,
                                  const std::vector<Flow>& flows) {
  std::vector<double> rates(flows.size(), 0), left = capacities;
  std::vector<bool> fixed(flows.size(), false);
  while (std::ranges::find(fixed, false) != fixed.end()) {
    std::vector<double> open(capacities.size(), 0);
    double step = kNoLimit;
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (fixed[f]) continue;
      step = std::min(step, flows[f].most - rates[f]);
      for (const LinkId link : flows[f].links) open[link] += 1;
    }
    for (std::size_t l = 0; l < left.size(); ++l)
      if (open[l] > 0) step = std::min(step, left[l] / open[l]);
    for (std::size_t f = 0; f < flows.size(); ++f)
      if (!fixed[f]) rates[f] += step;
    for (std::size_t l = 0; l < left.size(); ++l)
      if (open[l] > 0) left[l] -= open[l] * step;
    for (std::size_t f = 0; f < flows.size(); ++f) {
      const bool full = std::ranges::any_of(
          flows[f].links, [&](LinkId link) { return left[link] <= 1e-9 * capacities[link]; });
      if (full || rates[f] >= flows[f].most * (1 - 1e-12)) fixed[f] = true;
    }
  }
  return rates;
}

class RandomFlows : public testing::TestWithParam<std::uint64_t> {};

TEST_P(RandomFlows, ComingAndGoingIsAsFillingSlowly) {
  std::mt19937_64 random(GetParam());
  const auto below = [&](std::uint64_t bound) { return random() % bound; };
  const std::size_t link_count = 2 + below(12);
  std::vector<double> capacities;
  for (std::size_t i = 0; i < link_count; ++i)
    capacities.push_back(static_cast<double>(1 + below(20)));
  FairShare shares(capacities);
  std::map<FairShare::FlowId, Flow> flows;
  for (int round = 0; round < 60; ++round) {
    for (std::uint64_t change = 0; change <= below(4); ++change) {
      if (!flows.empty() && below(3) == 0) {
        auto gone = flows.begin();
        std::advance(gone, static_cast<std::ptrdiff_t>(below(flows.size())));
        shares.remove(gone->first);
        flows.erase(gone);
      } else {
        Flow flow{{}, below(2) == 0 ? kNoLimit : 0.5 * static_cast<double>(1 + below(12))};
        for (std::uint64_t i = 0; i <= below(4); ++i)
          flow.links.push_back(static_cast<LinkId>(below(link_count)));
        flows[shares.add(flow.links, flow.most)] = flow;
      }
    }
    shares.update();
    std::vector<Flow> list;
    for (const auto& [id, flow] : flows) list.push_back(flow);
    const std::vector<double> expected = filled_slowly(capacities, list);
    std::size_t i = 0;
    for (const auto& [id, flow] : flows)
      ASSERT_NEAR(shares.rate(id), expected[i++], 1e-9 * 20)
          << "seed " << GetParam() << ", round " << round << ", flow " << id;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomFlows, testing::Range(std::uint64_t{1}, std::uint64_t{25}));

}  // namespace
}  // namespace tutti
