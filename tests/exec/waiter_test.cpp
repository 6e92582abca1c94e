// SPDX-License-Identifier: Apache-2.0
#include "exec/waiter.hpp"

#include <gtest/gtest.h>

namespace tutti::test {
namespace {

TEST(Waiter, SpinsFirstAndLooksOnce) {
  Waiter waiter({.spins = 1000, .look_at = 5});
  int looks = 0;
  for (int round = 0; round < 900; ++round) {
    looks += waiter.should_look() ? 1 : 0;
    EXPECT_FALSE(waiter.wait());
    EXPECT_EQ(waiter.waited_ns(), 0) << "still spinning";
  }
  EXPECT_EQ(looks, 1);
}

TEST(Waiter, StopsSpinningWhenTold) {
  Waiter waiter({.spins = 1000, .look_at = 0});
  EXPECT_TRUE(waiter.should_look());
  waiter.stop_spinning();
  EXPECT_FALSE(waiter.should_look());
  (void)waiter.wait();
  EXPECT_GT(waiter.waited_ns(), 0) << "has yielded";
  waiter.reset();
  EXPECT_EQ(waiter.waited_ns(), 0);
  EXPECT_TRUE(waiter.should_look());
}

TEST(Waiter, DoesNotLookWhereItNeverSpins) {
  const Waiter waiter({.spins = 0, .look_at = 0});
  EXPECT_FALSE(waiter.should_look());
}

}  // namespace
}  // namespace tutti::test
