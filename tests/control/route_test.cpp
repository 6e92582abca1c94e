// SPDX-License-Identifier: Apache-2.0
// A host whose network comes later, or comes back: joining asks again until its deadline.
#include <cstdlib>

#include "control/link.hpp"
#include "control/root.hpp"
#include "job.hpp"
#include "networks.hpp"

namespace tutti::control {
namespace {

using namespace tutti::testing;

// "Network is unreachable": the link comes up when the first attempt has failed.
TEST(Route, ThatComesLaterIsWaitedFor) {
  const Networks networks(2);
  if (!networks.why_not().empty()) GTEST_SKIP() << networks.why_not();
  ASSERT_TRUE(networks.enter(0));
  const auto id = create_unique_id({.interfaces = "=eth0"});
  ASSERT_TRUE(id) << id.error().message;
  ASSERT_TRUE(networks.leave());
  const auto content = decode_id(*id);
  ASSERT_TRUE(content);
  ASSERT_TRUE(networks.enter(1));
  EXPECT_EQ(std::system("ip link set eth0 down"), 0);
  int asked = 0;
  const std::function<bool()> bring_up = [&] {
    if (++asked == 1) {
      EXPECT_EQ(std::system("ip link set eth0 up"), 0);
    }
    return false;
  };
  const auto root =
      open_connection(Way(content->tcp), content->key, {.rank = 1, .peer = kRootRank, .ranks = 2},
                      Stop(-1, &bring_up), patience());
  EXPECT_TRUE(root) << root.error().message;
  EXPECT_GE(asked, 1);
  ASSERT_TRUE(networks.leave());
  retire_root(content->key.session);
  EXPECT_TRUE(wait_for_roots(patience()));
}

TEST(Route, ThatNeverComesIsNamedAtTheDeadline) {
  const Networks networks(2);
  if (!networks.why_not().empty()) GTEST_SKIP() << networks.why_not();
  const auto id =
      encode_id({.key = make_session_key(), .tcp = "tcp:" + Networks::ip(0) + ":29500"});
  ASSERT_TRUE(id);
  ASSERT_TRUE(networks.enter(1));
  EXPECT_EQ(std::system("ip link set eth0 down"), 0);
  const JoinResult plane = ControlPlane::join(*id, 1, 2, {.deadline = Deadline::in_ms(100)});
  ASSERT_TRUE(networks.leave());
  ASSERT_FALSE(plane);
  EXPECT_EQ(plane.error().code, Code::kTimeout) << plane.error().message;
  EXPECT_NE(plane.error().message.find("cannot be reached from this host"), std::string::npos)
      << plane.error().message;
}

}  // namespace
}  // namespace tutti::control
