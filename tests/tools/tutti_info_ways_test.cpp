// SPDX-License-Identifier: Apache-2.0
// What tutti-info says of RDMA ports, where there may be none.
#include <gtest/gtest.h>

#include "tools/tutti-info/ways.hpp"

namespace tutti::info {
namespace {

TEST(TuttiInfoWays, RdmaIsPromisedOnlyWhereMemoryCanBeLocked) {
  RdmaHere here{.ports = {{.device = "rxe0", .port = 1, .active = false},
                          {.device = "rxe1", .port = 1, .active = true}},
                .lockable_bytes = 64 * 1024};
  const auto limited = rdma_text(here, {});
  ASSERT_TRUE(limited);
  EXPECT_EQ(limited->find("verbs at rxe1"), 0u) << *limited;
  EXPECT_NE(limited->find(", if this rank can lock its memory ('ulimit -l': 64 KiB)"),
            std::string::npos)
      << *limited;
  here.lockable_bytes = kNoLimit;
  EXPECT_NE(rdma_text(here, {})->find("('ulimit -l': unlimited)"), std::string::npos);
  here.ports.pop_back();
  EXPECT_EQ(rdma_text(here, {}).error().message, "no active RDMA port");
  Config chosen;
  chosen.ib_hca = "rxe0";
  EXPECT_EQ(rdma_text(here, chosen).error().message, "no active RDMA port among TUTTI_IB_HCA=rxe0");
}

}  // namespace
}  // namespace tutti::info
