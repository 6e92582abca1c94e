// SPDX-License-Identifier: Apache-2.0
// Times of whole plans: at the sizes that were measured, between them, and nowhere else; what is
// chosen by them.
#include "plan/measured.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/choice_table.hpp"

namespace tutti {
namespace {

TEST(MeasuredPlan, HasATimeBetweenSizesThatAreNear) {
  const MeasuredPlan plan{.name = "ring@slots",
                          .times = {{1024, 10}, {4096, 40}, {65536, 160}, {1 << 21, 1000}}};
  EXPECT_EQ(time_at(plan, 1024), 10);
  EXPECT_NEAR(time_at(plan, 2048).value(), 20, 1e-9);
  EXPECT_NEAR(time_at(plan, 16384).value(), 80, 1e-9);
  EXPECT_EQ(time_at(plan, 1 << 21), 1000);
  EXPECT_FALSE(time_at(plan, 131072)) << "32 times as large as the size before";
}

// A size class is what a choice is made for: 2^(1/4) below its size to 2^(1/4) above.
TEST(MeasuredPlan, OfOneSizeHoldsForItsClass) {
  const MeasuredPlan plan{.name = "ring@slots", .times = {{1'000'000, 100}}};
  for (const std::uint64_t bytes : {850'000, 1'000'000, 1 << 20, 1'180'000})
    EXPECT_EQ(time_at(plan, bytes), 100) << bytes;
  for (const std::uint64_t bytes : {1, 830'000, 1'200'000})
    EXPECT_FALSE(time_at(plan, bytes)) << bytes;
  EXPECT_FALSE(time_at(MeasuredPlan{.name = "ring@slots"}, 8));
}

// Plans of an all-reduce of 1 and 4 MiB among 8 ranks on 8 cores, by their place in price.
class MeasuredChoice : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kBytes = 1 << 20;
  static constexpr Problem kProblem{.collective = Collective::kAllReduce, .ranks = 8};

  MeasuredPlan measured_of(std::size_t i, double time_us) const {
    return MeasuredPlan{
        .collective = Collective::kAllReduce,
        .ranks = 8,
        .cores = 8,
        .name = plan_name(*priced_[i].candidate->algorithm, priced_[i].candidate->options),
        .times = {{kBytes, time_us}, {4 * kBytes, 4 * time_us}}};
  }
  bool is(std::size_t i, const ChoiceRow& row, std::uint64_t bytes) const {
    const ChoiceRow::Entry entry = row.at(size_class(bytes));
    const Candidate& candidate = *priced_[i].candidate;
    return listed_algorithms()[entry.algorithm] == candidate.algorithm &&
           entry.shape == candidate.shape;
  }
  bool stands_at(std::size_t i, std::uint64_t bytes, const std::vector<MeasuredPlan>& measured,
                 PeerAccess access = PeerAccess::kNone) const {
    return is(i,
              make_row(settings_, all_, access,
                       measured_for(measured, kProblem, settings_.cores, access)),
              bytes);
  }

  const Settings settings_ = *make_settings({}, 8);
  const std::vector<Contender> all_ = *contenders(settings_, {}, kProblem);
  const std::vector<Priced> priced_ = *price_candidates(settings_, all_, kBytes, PeerAccess::kNone);
};

// A measurement goes before the price.
TEST_F(MeasuredChoice, TakesTheFastest) {
  const auto chosen = [&](double other_us) {
    return stands_at(5, kBytes, {measured_of(0, 100), measured_of(5, other_us)});
  };
  EXPECT_TRUE(chosen(80));
  EXPECT_FALSE(chosen(98)) << "as fast, but dearer";
  EXPECT_FALSE(chosen(120));
  EXPECT_TRUE(stands_at(3, kBytes, {measured_of(0, 100), measured_of(3, 81), measured_of(5, 80)}))
      << "of two that are as fast, the cheaper one";
  EXPECT_FALSE(stands_at(5, kBytes, {measured_of(3, 100), measured_of(5, 80)}))
      << "nobody knows what the cheapest takes";
}

TEST_F(MeasuredChoice, HoldsForWhatWasMeasured) {
  const std::vector<MeasuredPlan> faster{measured_of(0, 100), measured_of(5, 50)};
  EXPECT_TRUE(stands_at(5, 2 * kBytes, faster)) << "between two sizes";
  EXPECT_TRUE(stands_at(5, 4 * kBytes, faster));
  for (const std::uint64_t outside : {kBytes / 2, 8 * kBytes}) {
    EXPECT_FALSE(stands_at(5, outside, faster)) << outside;
    std::vector<MeasuredPlan> there = faster;
    for (MeasuredPlan& each : there) each.times = {{outside, each.times.front().time_us}};
    EXPECT_TRUE(stands_at(5, outside, there)) << outside;
  }
  const auto but = [&](auto change) {
    std::vector<MeasuredPlan> others = faster;
    for (MeasuredPlan& each : others) change(each);
    return stands_at(5, kBytes, others);
  };
  EXPECT_TRUE(but([](MeasuredPlan&) {}));
  EXPECT_FALSE(but([](MeasuredPlan& plan) { plan.ranks = 4; }));
  EXPECT_FALSE(but([](MeasuredPlan& plan) { plan.cores = 4; }));
  EXPECT_FALSE(but([](MeasuredPlan& plan) { plan.windows = true; }));
  EXPECT_FALSE(but([](MeasuredPlan& plan) { plan.collective = Collective::kBroadcast; }));
}

TEST_F(MeasuredChoice, IsNotOfPlansThatAreCutOtherwise) {
  Settings cut = settings_;
  cut.min_slices = 2;
  const std::vector<MeasuredPlan> measured{measured_of(0, 100), measured_of(5, 50)};
  const auto row_of = [&](const std::vector<MeasuredPlan>& known) {
    return make_row(cut, all_, PeerAccess::kNone,
                    measured_for(known, kProblem, cut.cores, PeerAccess::kNone))
        .at(size_class(kBytes));
  };
  const ChoiceRow::Entry with = row_of(measured), without = row_of({});
  EXPECT_EQ(with.algorithm, without.algorithm);
  EXPECT_EQ(with.shape, without.shape);
}

// Also where an algorithm is forced that works in nobody's memory, and so has one price.
TEST_F(MeasuredChoice, OfWindowsStandsInTheirRows) {
  const Algorithm* const algorithm = priced_[0].contender->named;
  std::size_t other = 1;  // another way to run it
  while (other < priced_.size() && priced_[other].contender->named != algorithm) ++other;
  ASSERT_LT(other, priced_.size());
  std::vector<MeasuredPlan> measured{measured_of(0, 100), measured_of(other, 50)};
  for (MeasuredPlan& each : measured) each.windows = true;
  const ChoiceTable table = *make_table(settings_, 8, measured);
  const auto listed = listed_algorithms();
  const auto number =
      static_cast<std::size_t>(std::ranges::find(listed, algorithm) - listed.begin());
  const auto row = [&](PeerAccess access) {
    return table.of(Collective::kAllReduce)[static_cast<std::size_t>(access)].forced[number];
  };
  EXPECT_TRUE(is(other, row(PeerAccess::kMapped), kBytes));
  for (const PeerAccess access : {PeerAccess::kNone, PeerAccess::kAttach})
    EXPECT_TRUE(is(0, row(access), kBytes));
}

}  // namespace
}  // namespace tutti
