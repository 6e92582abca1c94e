// SPDX-License-Identifier: Apache-2.0
#include "schedule/space_time.hpp"

#include <gtest/gtest.h>

#include "samples.hpp"

namespace tutti {
namespace {

using namespace operands;

// Two ranks, each with the lanes given.
Schedule of(std::vector<RankProgram> ranks) {
  const auto p = static_cast<std::int32_t>(ranks.size());
  return {{.algorithm = "made", .ranks = p}, std::move(ranks)};
}

TEST(SpaceTime, AMessageTakesOneUnit) {
  LaneBuilder send0("a"), recv1("a");
  send0.step().to(send(1, 0, chunk(0))).from(input(chunk(0)));
  recv1.step().to(output(chunk(0))).from(recv(0, 0, chunk(0)));
  const SpaceTime run = space_time(of({assemble({send0}), assemble({recv1})}));
  ASSERT_EQ(run.events.size(), 2U);
  ASSERT_EQ(run.messages.size(), 1U);
  EXPECT_EQ(run.events[run.messages[0].sender].time, 0U);
  EXPECT_EQ(run.events[run.messages[0].receiver].time, 1U);
  EXPECT_EQ(run.depth, 1U);
  EXPECT_EQ(run.stuck_steps + run.lost_messages, 0U);
}

TEST(SpaceTime, WaitsOrderLanesOfARankButNotTheFirstSlice) {
  LaneBuilder a("a"), b("b");
  a.step().to(output(chunk(0))).from(input(chunk(0))).after(1, 0);     // waits for b
  a.step().to(output(chunk(0))).from(input(chunk(0))).after(1, 9, 1);  // an earlier slice: holds
  b.step().to(output(chunk(0))).from(input(chunk(0)));
  const SpaceTime run = space_time(of({assemble({a, b})}));
  ASSERT_EQ(run.events.size(), 3U);
  EXPECT_EQ(run.depth, 2U);
  EXPECT_EQ(run.stuck_steps, 0U);
}

TEST(SpaceTime, CountsWhatCanNeverHappen) {
  LaneBuilder lost("a"), stuck("a");
  lost.step().to(send(1, 0, chunk(0))).from(input(chunk(0)));
  stuck.step().to(output(chunk(0))).from(recv(0, 1, chunk(0)));
  stuck.step().to(output(chunk(0))).from(input(chunk(0)));
  const SpaceTime run = space_time(of({assemble({lost}), assemble({stuck})}));
  EXPECT_EQ(run.events.size(), 1U);
  EXPECT_EQ(run.stuck_steps, 2U);
  EXPECT_EQ(run.lost_messages, 1U);
}

}  // namespace
}  // namespace tutti
