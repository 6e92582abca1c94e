// SPDX-License-Identifier: Apache-2.0
// Ranks as forked processes: exchanges, descriptors, the board, and the death of a rank.
#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "board/board.hpp"
#include "control/link.hpp"
#include "control/messages.hpp"
#include "control/unique_id.hpp"
#include "job.hpp"
#include "tests/comm/meeting.hpp"

namespace tutti {
namespace {

using namespace tutti::testing;
using test::Meeting;

class Processes : public ::testing::TestWithParam<int> {};

TEST_P(Processes, ExchangeCallAndShareABoard) {
  const auto results = run_forked_job(GetParam(), [](ControlPlane& plane) {
    const auto ranks = static_cast<Rank>(plane.peers().size());
    const UniqueFd memory(::memfd_create("tutti-test", MFD_CLOEXEC));
    const std::string mine = "rank " + std::to_string(plane.rank());
    ASSERT_EQ(::pwrite(memory.get(), mine.data(), mine.size(), 0),
              static_cast<ssize_t>(mine.size()));
    plane.serve(RequestKind::kEcho, [&](const Request&) -> Result<HandlerReply> {
      return HandlerReply{.payload = {}, .lent_fd = memory.get()};
    });
    const auto board = Board::open(plane, patience());
    ASSERT_TRUE(board) << board.error().message;
    (*board)->set_state(RankState::kAlive);
    (*board)->enter({.operation = 7, .count = 100 + static_cast<std::uint64_t>(plane.rank())});
    (*board)->waiting_for((plane.rank() + 1) % ranks);
    ASSERT_TRUE(plane.barrier(patience()));
    for (Rank peer = 0; peer < ranks; ++peer) {
      const auto reply = plane.call(peer, RequestKind::kEcho, {}, patience());
      ASSERT_TRUE(reply) << reply.error().message;
      std::array<char, 16> text{};
      const ssize_t got = ::pread(reply->fd.get(), text.data(), text.size(), 0);
      EXPECT_EQ(std::string(text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))),
                "rank " + std::to_string(peer));
      EXPECT_EQ((*board)->state(peer), RankState::kAlive);
      EXPECT_EQ((*board)->last_entered(peer), 7u);
      EXPECT_EQ((*board)->waits_for(peer), (peer + 1) % ranks);
      const auto signature = (*board)->signature(peer, 7);
      ASSERT_TRUE(signature);
      EXPECT_EQ(signature->count, 100 + static_cast<std::uint64_t>(peer));
      EXPECT_NE(plane.peers()[static_cast<std::size_t>(peer)].pid, 0);
    }
    (*board)->poison({.culprit = plane.rank(), .kind = Poison::Kind::kFailure});
    EXPECT_TRUE((*board)->poisoned());
    const auto poison = (*board)->read_poison();
    ASSERT_TRUE(poison);
    // All ranks see the same one, whoever was first.
    const auto culprit = static_cast<std::byte>(poison->culprit);
    const auto all = plane.allgather(std::span(&culprit, 1), patience());
    ASSERT_TRUE(all) << all.error().message;
    EXPECT_EQ(*all, std::vector<std::byte>(static_cast<std::size_t>(ranks), culprit));
  });
  expect_all_passed(results);
}

// Collects the ranks whose death is reported.
class Deaths {
 public:
  void report(Rank rank) {
    const std::lock_guard lock(mutex_);
    ranks_.push_back(rank);
    changed_.notify_all();
  }
  std::vector<Rank> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs),
                      [&] { return ranks_.size() >= count; });
    return ranks_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_;
};

TEST_P(Processes, EverySurvivorNoticesTheRankThatIsKilled) {
  const Rank victim = static_cast<Rank>(GetParam() - 1);
  Meeting survivors;
  const auto results = run_forked_job(GetParam(), [&](ControlPlane& plane) {
    Deaths deaths;
    plane.watch_peers([&](Rank rank) {
      deaths.report(rank);
      return true;
    });
    ASSERT_TRUE(plane.barrier(patience()));
    plane.connect_watches(patience());
    ASSERT_TRUE(plane.barrier(patience()));  // or a rank would be asked that is dead
    if (plane.rank() == victim) ::raise(SIGKILL);
    const std::vector<Rank> dead = deaths.wait_for(1);
    ASSERT_FALSE(dead.empty()) << plane.note();
    EXPECT_EQ(dead.front(), victim);
    const Status status = plane.barrier(patience());
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kRemoteError) << status.error().message;
    EXPECT_EQ(status.error().culprit, victim) << status.error().message;
    EXPECT_TRUE(survivors.wait_for(GetParam() - 1));  // or an early end would be a death as well
    plane.forget_peers();
    plane.close();
  });
  expect_all_passed(results, {victim});
}

// A rank watches few processes until it hears of a death, and then all.
TEST(Forked, SurvivorsNoticeAllDeathsThoughThoseWhoWatchedAreDeadToo) {
  constexpr Rank kRanks = 12, kFirstDead = 2;  // 2 to 10 die: 0, 1 and 11 are left
  Meeting survivors;
  std::vector<int> killed;
  for (Rank rank = kFirstDead; rank < kRanks - 1; ++rank) killed.push_back(rank);
  const auto results = run_forked_job(kRanks, [&](ControlPlane& plane) {
    Deaths deaths;
    plane.watch_peers([&](Rank rank) {
      deaths.report(rank);
      return true;
    });
    ASSERT_TRUE(plane.barrier(patience()));
    plane.connect_watches(patience());
    ASSERT_TRUE(plane.barrier(patience()));
    if (plane.rank() >= kFirstDead && plane.rank() < kRanks - 1) ::raise(SIGKILL);
    std::vector<Rank> dead = deaths.wait_for(killed.size());
    std::ranges::sort(dead);
    EXPECT_EQ(dead, std::vector<Rank>(killed.begin(), killed.end()));
    EXPECT_TRUE(survivors.wait_for(kRanks - static_cast<Rank>(killed.size())));
    plane.forget_peers();
    plane.close();
  });
  expect_all_passed(results, killed);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Processes, ::testing::Values(2, 4, 8));

TEST(Forked, ARankThatDiesBeforeTheJobHasMetEndsItForAll) {
  const auto body = [](const ForkedRank& self) {
    const UniqueId id = id_from(self.message);
    if (self.rank == 1) {
      const auto content = control::decode_id(id);
      ASSERT_TRUE(content);
      auto root = control::open_connection(
          content->local, content->key,
          {.rank = 1, .peer = control::kRootRank, .ranks = self.ranks}, -1, patience());
      ASSERT_TRUE(root) << root.error().message;
      control::CheckIn check_in;
      check_in.left_ns = kPatienceMs * 1'000'000;
      check_in.root.job = content->key.session;
      check_in.member.info = {.rank = 1, .pid = ::getpid(), .host = "somewhere"};
      ASSERT_TRUE(control::send_within(*root, control::encode_check_in(check_in), -1, patience()));
      ::raise(SIGKILL);
    }
    if (self.rank == 2) return;  // never comes, so the job cannot have met
    const JoinResult plane =
        ControlPlane::join(id, static_cast<Rank>(self.rank), self.ranks, {.deadline = patience()});
    ASSERT_FALSE(plane);
    EXPECT_EQ(plane.error().code, Code::kRemoteError) << plane.error().message;
    EXPECT_EQ(plane.error().culprit, 1) << plane.error().message;
    EXPECT_NE(plane.error().message.find("somewhere"), std::string::npos);
  };
  const auto results =
      run_forked(4, body, {.after_fork = [] { return id_text(must_create_id()); }});
  expect_all_passed(results, {1});
}

// ThreadSanitizer forbids threads in a child of a process that has some; AddressSanitizer's
// allocator may be locked by one of them when the child is made.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST(Forked, AnIdMadeBeforeTheForkBelongsToTheParentAlone) {
  const UniqueId id = must_create_id();
  const auto results = run_forked(4, [&](const ForkedRank& self) {
    const auto rank = static_cast<Rank>(self.rank);
    JoinResult plane = ControlPlane::join(id, rank, self.ranks, {.deadline = patience()});
    ASSERT_TRUE(plane) << plane.error().message;
    ASSERT_TRUE((*plane)->barrier(patience()));
    ASSERT_TRUE((*plane)->barrier(patience()));  // all have left the root
    // A child that kept the root's sockets would let this wait for nobody.
    const JoinResult again = ControlPlane::join(id, rank, self.ranks, {.deadline = patience()});
    ASSERT_FALSE(again);
    EXPECT_NE(again.error().code, Code::kTimeout) << again.error().message;
    // And a child makes roots of its own.
    const UniqueId own = must_create_id();
    EXPECT_TRUE(ControlPlane::join(own, 0, 1, {.deadline = patience()}));
  });
  expect_all_passed(results);
}

TEST(Forked, AChildOfARankKeepsNothingOfIt) {
  auto planes = join_threads(2);
  const auto results = run_forked(1, [&](const ForkedRank&) {
    // Neither joins the parent's threads nor speaks on its sockets.
    planes.clear();
  });
  expect_all_passed(results);
  run_threads(2, [&](Rank rank) {
    EXPECT_TRUE(planes[static_cast<std::size_t>(rank)]->barrier(patience()));
  });
}
#endif

// Rank 0 asks a rank that is stopped. Of another host, its pid says nothing here.
void ask_who_is_stopped(bool same_host) {
  const auto results = run_forked(
      2,
      [&](const ForkedRank& self) {
        const JoinResult plane =
            ControlPlane::join(id_from(self.message), static_cast<Rank>(self.rank), self.ranks,
                               {.deadline = patience(),
                                .host_id_text = same_host || self.rank == 0 ? "host 0" : "host 1"});
        ASSERT_TRUE(plane) << plane.error().message;
        if (self.rank == 1) {
          ::raise(SIGSTOP);
          return;
        }
        const std::int32_t pid = (*plane)->peers()[1].pid;
        while (!control::is_stopped(pid)) ::sched_yield();
        const auto reply = (*plane)->call(1, RequestKind::kExchangeState, {}, Deadline::in_ms(100));
        EXPECT_EQ(::kill(pid, SIGCONT), 0);
        ASSERT_FALSE(reply);
        EXPECT_NE(reply.error().message.find("; that is rank 1 (pid "), std::string::npos)
            << reply.error().message;
        EXPECT_EQ(reply.error().message.find(", which is stopped") != std::string::npos, same_host)
            << reply.error().message;
      },
      {.after_fork = [] { return id_text(must_create_id()); }});
  expect_all_passed(results);
}

TEST(Forked, AStoppedRankIsCalledSo) { ask_who_is_stopped(true); }
TEST(Forked, ARankOfAnotherHostIsNotTakenForAStoppedProcessOfThisOne) { ask_who_is_stopped(false); }

}  // namespace
}  // namespace tutti
