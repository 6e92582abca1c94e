// SPDX-License-Identifier: Apache-2.0
// Jobs that meet at the roots of several ids: the division, who hears what, and what is said where
// lists differ, a rank stays away, or a root is gone. The C API's part: tests/api.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <initializer_list>
#include <set>

#include "control/division.hpp"
#include "control/link.hpp"
#include "control/root.hpp"
#include "job.hpp"

namespace tutti {
namespace {

using namespace tutti::testing;

using control::Division;
using ::testing::HasSubstr;

std::vector<UniqueId> must_create_ids(int count) {
  std::vector<UniqueId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(must_create_id());
  return ids;
}

JoinResult join_by(const std::vector<UniqueId>& ids, Rank rank, int ranks,
                   Deadline deadline = patience()) {
  return ControlPlane::join(ids, rank, ranks, {.deadline = deadline});
}

// As join_from(): a rank of a host of its own.
JoinResult join_far(std::uint64_t host, const std::vector<UniqueId>& ids, Rank rank, int ranks) {
  const auto contents = control::decode_ids(ids, ranks);
  if (!contents) return tl::unexpected(contents.error());
  auto plane = control::start_and_meet(
      *contents,
      {.key = control::job_key(*contents), .rank = rank, .ranks = ranks, .locality = 1 + host},
      {.deadline = patience()});
  if (!plane) return tl::unexpected(plane.error());
  return *std::move(plane);
}

// Every rank knows all of them, and an exchange is right.
void expect_whole(ControlPlane& plane, Rank rank, int ranks) {
  ASSERT_EQ(plane.rank(), rank);
  ASSERT_EQ(plane.peers().size(), static_cast<std::size_t>(ranks));
  for (Rank peer = 0; peer < ranks; ++peer)
    EXPECT_EQ(plane.peers()[static_cast<std::size_t>(peer)].rank, peer);
  const auto all = plane.allgather_values(rank * 3, patience());
  ASSERT_TRUE(all) << all.error().message;
  for (Rank peer = 0; peer < ranks; ++peer)
    EXPECT_EQ((*all)[static_cast<std::size_t>(peer)], peer * 3);
}

TEST(Division, GivesContiguousPartsOfWhichTheFirstHaveOneRankMore) {
  for (int ranks = 1; ranks <= 40; ++ranks)
    for (int roots = 1; roots <= ranks; ++roots) {
      SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << roots << " roots");
      const Division division(ranks, roots);
      Rank next = 0;
      for (int part = 0; part < roots; ++part) {
        ASSERT_EQ(division.leader_of(part), next);
        ASSERT_EQ(division.ranks_of(part), ranks / roots + (part < ranks % roots ? 1 : 0));
        int expected = 0;
        for (Rank rank = 0; rank < ranks; ++rank) expected += division.comes_to(part, rank) ? 1 : 0;
        ASSERT_EQ(division.expected_at(part), expected);
        for (int place = 0; place < division.ranks_of(part); ++place, ++next) {
          ASSERT_EQ(division.part_of(next), part);
          ASSERT_EQ(division.leads(next), place == 0);
          const control::Circle circle = division.part_circle(next);
          ASSERT_EQ(circle.place, place);
          ASSERT_EQ(circle.rank_at(place), next);
        }
      }
      ASSERT_EQ(next, ranks);
    }
}

// Rounds of the three exchanges are those of one, which a mailbox counts in 64.
TEST(Division, NeedsFewRoundsOfTheLargestJob) {
  for (int roots = 2; roots <= control::kMaxRanks; ++roots) {
    const Division division(control::kMaxRanks, roots);
    ASSERT_LE(
        2 * control::exchange_rounds(division.largest_part()) + control::exchange_rounds(roots),
        64U)
        << roots << " roots";
  }
}

TEST(JobKey, IsTheListsAndItsOrders) {
  const auto contents = control::decode_ids(must_create_ids(3), 3);
  ASSERT_TRUE(contents);
  const auto key_of = [&](std::initializer_list<std::size_t> which) {
    std::vector<control::IdContent> list;
    for (const std::size_t i : which) list.push_back((*contents)[i]);
    return control::job_key(list);
  };
  EXPECT_EQ(key_of({0}).session, (*contents)[0].key.session);
  EXPECT_EQ(key_of({0}).secret, (*contents)[0].key.secret);
  std::set<SessionId> sessions;
  std::set<control::Secret> secrets;
  for (const auto& list : {key_of({0}), key_of({1}), key_of({0, 1}), key_of({1, 0}), key_of({0, 2}),
                           key_of({0, 1, 2})}) {
    EXPECT_TRUE(sessions.insert(list.session).second);
    EXPECT_TRUE(secrets.insert(list.secret).second);
  }
  // The last id's secret is in it too, though its session is public.
  std::vector<control::IdContent> guessed(contents->begin(), contents->end());
  guessed[2].key.secret[0] ^= std::byte{1};
  EXPECT_EQ(control::job_key(guessed).session, key_of({0, 1, 2}).session);
  EXPECT_NE(control::job_key(guessed).secret, key_of({0, 1, 2}).secret);
  for (const control::IdContent& content : *contents) control::retire_root(content.key.session);
}

class SeveralRoots : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(SeveralRoots, ThreadsMeet) {
  const auto [ranks, roots] = GetParam();
  const std::vector<UniqueId> ids = must_create_ids(roots);
  run_threads(ranks, [&, ranks = ranks](Rank rank) {
    const JoinResult plane = join_by(ids, rank, ranks);
    ASSERT_TRUE(plane) << plane.error().message;
    expect_whole(**plane, rank, ranks);
    EXPECT_TRUE((*plane)->barrier(patience()));
  });
  EXPECT_TRUE(control::wait_for_roots(patience())) << "a root is left";
}

TEST_P(SeveralRoots, RanksOfOtherHostsMeet) {
  const auto [ranks, roots] = GetParam();
  const std::vector<UniqueId> ids = must_create_ids(roots);
  run_threads(ranks, [&, ranks = ranks](Rank rank) {
    const JoinResult plane = join_far(static_cast<std::uint64_t>(rank) / 2, ids, rank, ranks);
    ASSERT_TRUE(plane) << plane.error().message;
    expect_whole(**plane, rank, ranks);
  });
  EXPECT_TRUE(control::wait_for_roots(patience())) << "a root is left";
}

INSTANTIATE_TEST_SUITE_P(RanksAndRoots, SeveralRoots,
                         ::testing::Values(std::pair{2, 2}, std::pair{3, 2}, std::pair{3, 3},
                                           std::pair{5, 2}, std::pair{7, 3}, std::pair{8, 3},
                                           std::pair{8, 8}, std::pair{16, 5}));

// What the first ranks wrote for all: each of them makes an id after the fork.
struct SharedIds {
  std::atomic<int> made = 0;
  std::array<UniqueId, 3> ids;
};

TEST(SeveralRoots, OfDifferentProcessesServeOneJob) {
  constexpr int kRanks = 7;
  for (const int roots : {2, 3}) {
    const auto unmap = [](SharedIds* ids) { ::munmap(ids, sizeof *ids); };
    const std::unique_ptr<SharedIds, decltype(unmap)> shared(
        new (::mmap(nullptr, sizeof(SharedIds), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                    -1, 0)) SharedIds,
        unmap);
    const auto results = run_forked(
        kRanks,
        [&](const ForkedRank& self) {
          // The last ranks make the ids: an id's root may be with a rank of another part.
          const int mine = kRanks - 1 - self.rank;
          if (mine < roots) {
            shared->ids[static_cast<std::size_t>(mine)] = must_create_id();
            ++shared->made;
          }
          while (shared->made < roots) std::this_thread::yield();
          const std::vector<UniqueId> ids(shared->ids.begin(), shared->ids.begin() + roots);
          const JoinResult plane = join_by(ids, self.rank, kRanks);
          ASSERT_TRUE(plane) << plane.error().message;
          expect_whole(**plane, self.rank, kRanks);
          EXPECT_TRUE((*plane)->barrier(patience()));
          EXPECT_TRUE(control::wait_for_roots(patience())) << "the root is left";
        },
        {});
    expect_all_passed(results);
  }
}

// All of them hear it, also those of other parts; its part's root names it.
TEST(SeveralRoots, ARankThatStaysAwayIsNamedToAllParts) {
  constexpr int kRanks = 7;
  for (const Rank absent : {0, 4}) {
    const std::vector<UniqueId> ids = must_create_ids(3);
    // One for all: of roots whose time ends apart the first would not know the name.
    const Deadline deadline = Deadline::in_ms(2000);
    run_threads(kRanks, [&](Rank rank) {
      if (rank == absent) return;
      const JoinResult plane = join_by(ids, rank, kRanks, deadline);
      ASSERT_FALSE(plane);
      EXPECT_EQ(plane.error().culprit, absent) << "rank " << rank << ": " << plane.error().message;
      EXPECT_EQ(plane.error().code, Code::kTimeout);
      EXPECT_THAT(plane.error().message,
                  HasSubstr("rank " + std::to_string(absent) + " of 7 did not join"));
    });
    for (const UniqueId& id : ids) control::retire_root(control::decode_id(id)->key.session);
  }
}

TEST(SeveralRoots, ListsInAnotherOrderAreNamed) {
  const std::vector<UniqueId> ids = must_create_ids(2), turned{ids[1], ids[0]};
  std::atomic<int> named = 0;
  run_threads(2, [&](Rank rank) {
    const JoinResult plane = join_by(rank == 0 ? ids : turned, rank, 2);
    ASSERT_FALSE(plane);
    EXPECT_EQ(plane.error().code, Code::kInvalidUsage) << plane.error().message;
    if (plane.error().message.find("different lists of unique ids") != std::string::npos) ++named;
  });
  EXPECT_EQ(named, 2);
  for (const UniqueId& id : ids) control::retire_root(control::decode_id(id)->key.session);
}

// Rank 3, of the second part, has another third id, at whose root it has nothing to do.
TEST(SeveralRoots, ListsThatDifferElsewhereAreNamedToAll) {
  constexpr int kRanks = 6;
  const std::vector<UniqueId> ids = must_create_ids(3);
  std::vector<UniqueId> other = ids;
  other[2] = must_create_id();
  run_threads(kRanks, [&](Rank rank) {
    const JoinResult plane = join_by(rank == 3 ? other : ids, rank, kRanks);
    ASSERT_FALSE(plane);
    EXPECT_EQ(plane.error().code, Code::kInvalidUsage) << plane.error().message;
    EXPECT_THAT(plane.error().message, HasSubstr("different lists of unique ids"));
  });
  for (const auto& list : {ids, other})
    for (const UniqueId& id : list) control::retire_root(control::decode_id(id)->key.session);
}

TEST(SeveralRoots, WrongListsAreRefusedAtOnce) {
  const std::vector<UniqueId> ids = must_create_ids(3);
  std::vector<UniqueId> twice = ids, damaged = ids;
  twice[2] = ids[0];
  damaged[1].bytes[kUniqueIdBytes / 2] ^= std::byte{1};
  const auto text_of = [](const std::vector<UniqueId>& list, int ranks) {
    const JoinResult plane = join_by(list, 0, ranks);
    EXPECT_FALSE(plane);
    if (plane) return std::string();
    EXPECT_EQ(plane.error().code, Code::kInvalidArgument);
    return plane.error().message;
  };
  EXPECT_THAT(text_of({}, 2), HasSubstr("the number of unique ids is 0, and that of ranks 2"));
  EXPECT_THAT(text_of(ids, 2), HasSubstr("the number of unique ids is 3, and that of ranks 2"));
  EXPECT_THAT(text_of(twice, 3), HasSubstr("unique ids 1 and 3 of 3 are the same"));
  EXPECT_THAT(text_of(damaged, 3), HasSubstr("unique id 2 of 3: the unique id is damaged"));
  for (const UniqueId& id : ids) control::retire_root(control::decode_id(id)->key.session);
}

// A part's root is gone before anybody comes: its leader tells the others.
TEST(SeveralRoots, ARootThatIsGoneIsNamedToAllParts) {
  constexpr int kRanks = 5;
  for (const std::size_t dead : {std::size_t{1}, std::size_t{2}}) {
    const std::vector<UniqueId> ids = must_create_ids(3);
    const auto content = control::decode_id(ids[dead]);
    ASSERT_TRUE(content);
    control::retire_root(content->key.session);
    const Division division(kRanks, 3);
    run_threads(kRanks, [&](Rank rank) {
      const JoinResult plane = join_by(ids, rank, kRanks, Deadline::in_ms(3'600'000));
      ASSERT_FALSE(plane);
      EXPECT_THAT(plane.error().message, HasSubstr("cannot reach the root of unique id " +
                                                   std::to_string(dead + 1) + " of 3"))
          << "rank " << rank;
    });
    for (const UniqueId& id : ids) control::retire_root(control::decode_id(id)->key.session);
  }
}

TEST(SeveralRoots, ARankThatAbortsItsJoinEndsThatOfAllParts) {
  constexpr int kRanks = 6;
  for (const Rank aborting : {1, 2, 5}) {
    const std::vector<UniqueId> ids = must_create_ids(3);
    std::stop_source cancel;
    std::atomic<int> begun = 0;
    run_threads(kRanks, [&](Rank rank) {
      if (rank == (aborting + 1) % kRanks) {  // it never comes, so all the others wait
        while (begun < kRanks - 1) std::this_thread::yield();
        cancel.request_stop();
        return;
      }
      ++begun;
      const JoinResult plane =
          ControlPlane::join(ids, rank, kRanks,
                             {.deadline = Deadline::in_ms(3'600'000),
                              .cancel = rank == aborting ? cancel.get_token() : std::stop_token()});
      EXPECT_FALSE(plane);
    });
    EXPECT_TRUE(control::wait_for_roots(patience()));
  }
}

}  // namespace
}  // namespace tutti
