// SPDX-License-Identifier: Apache-2.0
#include "plan/settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

// Whoever reads the list of variables learns which ones a job must set alike.
TEST(UniformSettings, SayThatTheyAreEqualOnAllRanks) {
  for (const std::string_view name : uniform_variables()) {
    const auto row = std::ranges::find(config_table(), name, &ConfigVariable::name);
    ASSERT_NE(row, config_table().end()) << name;
    EXPECT_THAT(std::string(row->help), HasSubstr("equal on all ranks")) << name;
  }
}

TEST(UniformSettings, ADifferenceIsTheFirstOneWithBothValues) {
  Config config;
  const Settings mine = *make_settings(config, 2);
  EXPECT_FALSE(first_difference(mine, mine));
  config.slots = 3;
  config.slot_bytes = 4096;
  const auto found = first_difference(mine, *make_settings(config, 2));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->what, "TUTTI_SLOT_BYTES");
  EXPECT_EQ(found->a, "auto");
  EXPECT_EQ(found->b, "4096");
}

// What ranks compare first: the hash differs where a setting does, and for nothing else.
TEST(UniformSettings, AHashTellsWhetherAnyDiffers) {
  const Settings mine = *make_settings({}, 2);
  Settings other = *make_settings({}, 64);  // other cores, which a rank may have
  other.table_hash = 5;
  EXPECT_EQ(uniform_hash(mine), uniform_hash(other));
  const auto differs = [&](auto change) {
    Settings changed = mine;
    change(changed);
    EXPECT_TRUE(first_difference(mine, changed));
    EXPECT_NE(uniform_hash(mine), uniform_hash(changed)) << first_difference(mine, changed)->what;
  };
  differs([](Settings& s) { ++s.layout; });
  differs([](Settings& s) { s.arena_bytes += 4096; });
  differs([](Settings& s) { s.transport = TransportChoice::kTcp; });
  differs([](Settings& s) { s.slot_bytes = 8192; });
  differs([](Settings& s) { s.slots = 3; });
  differs([](Settings& s) { s.replicas = 2; });
  differs([](Settings& s) { s.min_slices = 7; });
  differs([](Settings& s) { std::string_view("ring").copy(s.forced.data(), 4); });
  differs([](Settings& s) { s.protocol = ProtocolChoice::kSlots; });
  differs([](Settings& s) { s.fp32_partials = true; });
}

}  // namespace
}  // namespace tutti::test
