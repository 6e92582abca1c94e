// SPDX-License-Identifier: Apache-2.0
// Times of whole plans: at the sizes that were measured, between them, and nowhere else.
#include "plan/measured.hpp"

#include <gtest/gtest.h>

#include <cstdint>

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

}  // namespace
}  // namespace tutti
