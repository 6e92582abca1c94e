// SPDX-License-Identifier: Apache-2.0
// Layout: every element of every parameter has one place, shards cut a unit into equal whole lines.
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <vector>

#include "tutti/zero.hpp"

namespace tutti::zero {
namespace {

std::vector<Unit> odd_units() {
  return {{"a", {{"w", {3, 5}}, {"one", {}}, {"none", {0, 7}}, {"b", {64}}}},
          {"empty", {}},
          {"tiny", {{"t", {1}}}},
          {"large", {{"l", {1000, 3}}, {"m", {17}}}}};
}

TEST(ZeroLayout, EachElementHasOnePlace) {
  for (const int shards : {1, 2, 3, 7, 64}) {
    const std::vector<Unit> units = odd_units();
    const Layout layout(units, shards);
    std::uint64_t all = 0, padded = 0, largest = 0;
    for (int unit = 0; unit < layout.units(); ++unit) {
      std::set<std::uint64_t> places;
      const auto& parameters = units[static_cast<std::size_t>(unit)].parameters;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const Range range = layout.parameter(unit, static_cast<int>(i));
        EXPECT_EQ(range.elements(), parameters[i].elements());
        for (std::uint64_t at = range.begin; at < range.end; ++at)
          EXPECT_TRUE(places.insert(at).second);
      }
      EXPECT_EQ(places.size(), layout.elements(unit));
      if (!places.empty()) {
        EXPECT_EQ(*places.begin(), 0U);
        EXPECT_EQ(*places.rbegin(), layout.elements(unit) - 1);
      }
      all += layout.elements(unit);
      padded += layout.padded_elements(unit);
      largest = std::max(largest, layout.padded_elements(unit));
    }
    EXPECT_EQ(layout.elements(), all);
    EXPECT_EQ(layout.padded_elements(), padded);
    EXPECT_EQ(layout.largest_padded_elements(), largest);
  }
}

TEST(ZeroLayout, ShardsAreEqualWholeLinesAndCoverTheUnit) {
  const std::vector<Unit> units = odd_units();
  for (const int shards : {1, 2, 3, 7, 64}) {
    const Layout layout(units, shards);
    EXPECT_EQ(layout.shards(), shards);
    for (int unit = 0; unit < layout.units(); ++unit) {
      std::uint64_t next = 0;
      for (int shard = 0; shard < shards; ++shard) {
        const Range range = layout.shard(unit, shard);
        EXPECT_EQ(range.begin, next);
        EXPECT_EQ(range.elements() * bytes_of(Number::kBfloat16) % 64, 0U);
        EXPECT_EQ(range.elements(), layout.shard(unit, 0).elements());
        next = range.end;
      }
      EXPECT_EQ(next, layout.padded_elements(unit));
      EXPECT_GE(next, layout.elements(unit));
      EXPECT_LT(next - layout.elements(unit), 32U * static_cast<unsigned>(shards));
    }
  }
}

TEST(ZeroLayout, RefusesWhatIsNoModel) {
  const std::vector<Unit> none;
  EXPECT_THROW(Layout(none, 1), std::invalid_argument);
  const std::vector<Unit> twice{{"a", {{"w", {1}}}}, {"b", {{"w", {2}}}}};
  EXPECT_THROW(Layout(twice, 1), std::invalid_argument);
  const std::vector<Unit> negative{{"a", {{"w", {-1}}}}};
  EXPECT_THROW(Layout(negative, 1), std::invalid_argument);
  const std::vector<Unit> huge{{"a", {{"w", {1LL << 40, 1LL << 40}}}}};
  EXPECT_THROW(Layout(huge, 1), std::invalid_argument);
  const std::vector<Unit> units = odd_units();
  EXPECT_THROW(Layout(units, 0), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(Layout(units, 2).shard(0, 2)), std::out_of_range);
}

}  // namespace
}  // namespace tutti::zero
