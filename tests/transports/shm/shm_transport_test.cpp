// SPDX-License-Identifier: Apache-2.0
// Shared memory against the conformance suite, by memfd and by the fallback, and what is its alone.
#include "transports/shm/shm_transport.hpp"

#include "transports/conformance.hpp"

namespace tutti::test {
namespace {

Result<std::unique_ptr<Transport>> make_shm(ControlChannel& control, std::uint64_t arena_bytes) {
  return make_shm_transport(control, {.arena_bytes = arena_bytes});
}
Result<std::unique_ptr<Transport>> make_shm_by_file(ControlChannel& control,
                                                    std::uint64_t arena_bytes) {
  return make_shm_transport(control, {.arena_bytes = arena_bytes, .backing = shm::Backing::kFile});
}

INSTANTIATE_TEST_SUITE_P(Shm, Conformance, conformance_values(Factory{"shm", &make_shm}),
                         conformance_name);
INSTANTIATE_TEST_SUITE_P(Shm, ConformanceOfShared, conformance_values(Factory{"shm", &make_shm}),
                         conformance_name);
INSTANTIATE_TEST_SUITE_P(Shm, ConformanceOfProcesses, process_values(Factory{"shm", &make_shm}),
                         conformance_name);
INSTANTIATE_TEST_SUITE_P(ShmByFile, Conformance,
                         conformance_values(Factory{"shm_by_file", &make_shm_by_file}),
                         conformance_name);
INSTANTIATE_TEST_SUITE_P(ShmByFile, ConformanceOfShared,
                         conformance_values(Factory{"shm_by_file", &make_shm_by_file}),
                         conformance_name);
INSTANTIATE_TEST_SUITE_P(ShmByFile, ConformanceOfProcesses,
                         process_values(Factory{"shm_by_file", &make_shm_by_file}),
                         conformance_name);

constexpr Factory kShm{"shm", &make_shm};

TEST(ShmTransport, ThreadsOfOneProcessShareOneMapping) {
  run_job({.ranks = 3}, kShm, [](Member& me) {
    const std::uint64_t own = me.transport->mapped_bytes();
    const Rank peer = (me.rank + 1) % me.ranks;
    me.connect(peer);
    EXPECT_EQ(me.transport->mapped_bytes(), own);
  });
}

TEST(ShmTransport, ProcessesMapEachPeerOnce) {
  run_job({.ranks = 3, .spawn = Spawn::kProcesses}, kShm, [](Member& me) {
    const std::uint64_t own = me.transport->mapped_bytes();
    for (Rank peer = 0; peer < me.ranks; ++peer) me.connect(peer);
    EXPECT_EQ(me.transport->mapped_bytes(), 3 * own);
  });
}

TEST(ShmTransport, ReachesItsHostOnly) {
  run_job({.ranks = 1}, kShm, [](Member& me) {
    PeerInfo info = me.control->peers()[0];
    EXPECT_TRUE(me.transport->reaches(info));
    info.host_id ^= 1;
    EXPECT_FALSE(me.transport->reaches(info));
  });
}

TEST(ShmTransport, RanksThatDisagreeOnTheArenaAreToldSo) {
  const Factory by_rank{"by_rank", [](ControlChannel& control, std::uint64_t arena_bytes) {
                          const auto factor = static_cast<std::uint64_t>(control.rank()) + 1;
                          return make_shm_transport(control, {.arena_bytes = arena_bytes * factor});
                        }};
  run_job({.ranks = 2, .spawn = Spawn::kProcesses, .receive = false}, by_rank, [](Member& me) {
    if (me.rank == 0) return;
    for (const Rank peer : {1, 0}) {
      const Status status = me.transport->connect(peer, Member::patience());
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, Code::kInvalidUsage) << status.error().message;
      EXPECT_EQ(status.error().culprit, 0);
    }
  });
}

// The first rank of the host makes the memory; what the others do meanwhile does not matter.
TEST(ShmTransport, OnlyTheFirstRankIsAsked) {
  run_job({.ranks = 3, .spawn = Spawn::kProcesses, .listen = false}, kShm, [](Member& me) {
    if (me.rank == 0) {
      ASSERT_TRUE(me.transport->listen());
    }
    me.meet();
    if (me.rank == 1) {
      ASSERT_TRUE(me.transport->listen());
      me.connect(2);  // which does not listen yet
      EXPECT_TRUE(me.transport->connect(0, Deadline{}));
    }
    me.meet();
  });
}

TEST(ShmTransport, ArenaIsRoundedToPagesAndBounded) {
  run_job({.ranks = 1, .arena_bytes = 5000}, kShm, [](Member& me) {
    EXPECT_EQ(me.transport->capabilities().arena_bytes, 8192U);
    EXPECT_TRUE(me.transport->capabilities().shares);
    EXPECT_FALSE(me.transport->capabilities().pumps);
    EXPECT_FALSE(make_shm_transport(*me.control, {.arena_bytes = UINT64_MAX}));
  });
}

}  // namespace
}  // namespace tutti::test
