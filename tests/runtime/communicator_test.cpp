// The communicator itself, where the C API's handle would be in the way: abort while the user's
// thread is inside a call.
#include "runtime/communicator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

TEST(Abort, EndsTheCallOfTheUsersThread) {
  const auto id = create_unique_id();
  ASSERT_TRUE(id) << id.error().message;
  std::thread other([&] {
    const auto communicator = Communicator::create(*id, 1, 2, {});
    ASSERT_TRUE(communicator) << communicator.error().message;
    while (!(*communicator)->error()) std::this_thread::yield();  // never calls
    EXPECT_THAT((*communicator)->error()->message, HasSubstr("rank 0 (pid"));
  });
  {
    const auto communicator = Communicator::create(*id, 0, 2, {});
    ASSERT_TRUE(communicator) << communicator.error().message;
    float data = 1;
    HeldCall call{communicator->get(), {.input = &data, .output = &data, .count = 1}, nullptr};
    std::thread user([&] {
      const Status status = run_operations({&call, 1});
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, Code::kRemoteError);
      EXPECT_EQ(status.error().culprit, 0);
    });
    (*communicator)->abort();
    user.join();
  }
  other.join();
}

TEST(Settings, ForeignBytesAreRefused) {
  Settings settings = *make_settings({}, 4, 2);
  EXPECT_TRUE(check_settings(settings));
  settings.algorithm.fill('x');  // a name without an end
  EXPECT_FALSE(check_settings(settings));
  settings = *make_settings({}, 4, 2);
  settings.layout = 1;
  EXPECT_FALSE(check_settings(settings));
}

TEST(Choice, PicksTheCheapestAndObeysForce) {
  const Settings settings = *make_settings({}, 8, 8);
  const auto all = *contenders(settings, 8, nullptr);
  const auto small = rank_candidates(settings, all, 8);
  const auto large = rank_candidates(settings, all, 256 << 20);
  ASSERT_FALSE(small.empty());
  EXPECT_EQ(small.front().algorithm->name, "one_shot");
  EXPECT_NE(large.front().algorithm->name, "one_shot");
  EXPECT_GT(large.front().options.replicas, 1u) << "large data must pipeline";
  for (std::size_t i = 1; i < large.size(); ++i)
    EXPECT_LE(large[i - 1].price_ns, large[i].price_ns);
  const Algorithm* const tree = *forced_algorithm("tree");
  for (const Candidate& c : rank_candidates(settings, *contenders(settings, 8, tree), 8))
    EXPECT_EQ(c.algorithm->name, "tree");
  EXPECT_EQ(*forced_algorithm("auto"), nullptr);
  EXPECT_THAT(forced_algorithm("rings").error().message, HasSubstr("there are ring, tree"));
  EXPECT_THAT(forced_algorithm("rings").error().message, HasSubstr("or auto"));
  EXPECT_FALSE(forced_algorithm(std::string(500, 'a')));
  const Algorithm* const five = *forced_algorithm("hierarchical:groups=3+2");
  EXPECT_TRUE(contenders(settings, 5, five));
  EXPECT_EQ(contenders(settings, 8, five).error().code, Code::kNotSupported);
}

TEST(Choice, DirectPlansNeedMemoryWithinReach) {
  Settings settings = *make_settings({}, 2, 2);
  const Algorithm* const remote = *forced_algorithm("two_shot:access=remote");
  const auto tries_remote = [&] {
    const auto all = *contenders(settings, 2, nullptr);
    return std::ranges::find(all, remote, &Contender::algorithm) != all.end();
  };
  EXPECT_FALSE(tries_remote());
  settings.direct = {.refused = 0, .error = EPERM, .rank = 1};
  EXPECT_THAT(contenders(settings, 2, remote).error().message,
              HasSubstr("rank 1 may not read the memory of rank 0: Operation not permitted"));
  settings.direct.error = 0;
  EXPECT_THAT(contenders(settings, 2, remote).error().message,
              HasSubstr("rank 1 has TUTTI_CMA=off"));
  for (const PeerAccess access : {PeerAccess::kAttach, PeerAccess::kMapped}) {
    settings.direct.access = access;
    EXPECT_TRUE(tries_remote());
    const auto candidates = rank_candidates(settings, *contenders(settings, 2, remote), 1 << 20);
    ASSERT_FALSE(candidates.empty());
    for (const Candidate& c : candidates) EXPECT_EQ(c.options.protocol, Protocol::kDirect);
    // Signals alone cost more than a small message.
    const auto small = rank_candidates(settings, *contenders(settings, 2, nullptr), 8);
    EXPECT_NE(small.front().options.protocol, Protocol::kDirect);
    const auto large = rank_candidates(settings, *contenders(settings, 2, nullptr), 64 << 20);
    EXPECT_EQ(large.front().options.protocol, Protocol::kDirect);
    settings.cores = 1;  // turns on one core: nothing is left in its cache
    const auto crowded = rank_candidates(settings, *contenders(settings, 2, nullptr), 64 << 20);
    EXPECT_NE(crowded.front().options.protocol, Protocol::kDirect);
    settings.cores = 2;
  }
}

}  // namespace
}  // namespace tutti::test
