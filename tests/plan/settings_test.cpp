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

}  // namespace
}  // namespace tutti::test
