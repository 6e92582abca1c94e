// SPDX-License-Identifier: Apache-2.0
// How many blocks of a device communicators get.
#include "device/budget.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tutti::test {
namespace {

// docs/design.md says how many. Those that are to leave blocks to others take a fixed number.
TEST(DeviceBudget, NineCommunicatorsOfOneRankShareADevice) {
  constexpr int kDevice = 1000, kBlocks = 132;
  std::vector<int> counts;
  std::vector<device::Reservation> all;
  const auto take = [&](const device::BlockRange& range) {
    auto taken = device::Reservation::take(kDevice, kBlocks, 1, range);
    if (!taken) return false;
    counts.push_back(taken->count());
    all.push_back(*std::move(taken));
    return true;
  };
  while (take({})) {
  }
  EXPECT_THAT(counts, testing::ElementsAre(66, 33, 16, 8, 4, 2, 1, 1, 1));
  all.clear();
  counts.clear();
  while (take({.least = 4, .most = 4})) {
  }
  EXPECT_EQ(counts.size(), 33U);
}

}  // namespace
}  // namespace tutti::test
