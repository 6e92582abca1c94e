// SPDX-License-Identifier: Apache-2.0
// Who holds a job up: every kind of end that a chain of waits can have, from jobs written by hand.
#include "tools/tutti-info/stall.hpp"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/tutti-info/ranks.hpp"

namespace tutti::info {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr Moment kNow{.monotonic_ns = 100 * kSecond, .realtime_ns = 5000 * kSecond, .boot = 7};

OperationSignature signature_of(std::uint64_t number) {
  return {.operation = number, .collective = Collective::kAllReduce, .count = 8};
}

// Between operations, after `operation`, which it entered at 80 s.
void leave(control::RankView& rank, std::uint64_t operation) {
  rank.entered = rank.left = operation;
  rank.left_ns = 81 * kSecond;
  rank.history.push_back({signature_of(operation), 80 * kSecond});
}

// In `operation` since 90 s.
void enter(control::RankView& rank, std::uint64_t operation) {
  rank.entered = operation;
  rank.left = operation - 1;
  rank.history.push_back({signature_of(operation), 90 * kSecond});
}

// Ranks in #12, of whom `peers[r]` is whom rank r waits for, since 90 s; kNoRank: for nobody.
Job job_of(const std::vector<Rank>& peers) {
  Job job{"here", {.session = "ab", .host = "node1", .ranks = 8, .boot = 7}, {}};
  for (std::size_t i = 0; i < peers.size(); ++i) {
    control::RankView rank;
    rank.rank = static_cast<Rank>(i);
    rank.pid = 100 + static_cast<std::int32_t>(i);
    rank.state = RankState::kAlive;
    enter(rank, 12);
    if (peers[i] != kNoRank) rank.wait = control::WaitView{peers[i], {.since_ns = 90 * kSecond}};
    job.board.here.push_back(rank);
  }
  job.processes.assign(peers.size(), ProcessState::kRuns);
  return job;
}

Culprit only(const Job& job) {
  const auto culprits = find_culprits(job, kNow, kSecond);
  EXPECT_EQ(culprits.size(), 1u);
  return culprits.empty() ? Culprit{} : culprits[0];
}

TEST(Ranks, TellWhereAKernelGaveUp) {
  Job job = job_of({1, kNoRank});
  job.board.here[0].fault = KernelFault{.peer = 1,
                                        .block = 3,
                                        .place = {.lane = 2, .step = 5, .slice = 7},
                                        .receives = true,
                                        .expected = 0xc000001,
                                        .seen = 0xb000001};
  const std::string line =
      "its kernel gave up: block 3, lane 2, slice 7, step 5, a message of rank 1: expected "
      "0xc000001, saw 0xb000001\n";
  EXPECT_THAT(ranks_text({.jobs = {job}}, kNow, {}), HasSubstr(line));
  EXPECT_THAT(ranks_json({.jobs = {job}}, kNow, {}), HasSubstr("\"kernel_fault\": {"));
}

TEST(Stall, NobodyWaits) {
  EXPECT_THAT(find_culprits(job_of({kNoRank, kNoRank}), kNow, 0), IsEmpty());
}

TEST(Stall, AChainLeadsToTheRankThatHasNotEntered) {
  Job job = job_of({1, 2, 3, kNoRank});
  job.board.here[3].history.clear();
  leave(job.board.here[3], 11);
  const Culprit culprit = only(job);
  EXPECT_EQ(culprit.kind, "not entered");
  EXPECT_EQ(culprit.rank, 3);
  EXPECT_THAT(culprit.waiting, ElementsAre(0, 1, 2));
  EXPECT_EQ(
      culprit.line,
      fmt::format("rank 3 (pid 103 on node1) has not entered {}; it left {} 19.0 s ago; ranks "
                  "0, 1, 2 wait for it",
                  signature_of(12).to_string(), signature_of(11).to_string()));
  job.board.here[3] = control::RankView{.rank = 3, .pid = 103, .state = RankState::kAlive};
  EXPECT_THAT(only(job).line, HasSubstr("; it has entered none so far; "));
}

TEST(Stall, ShortWaitsAreNone) {
  Job job = job_of({1, kNoRank});
  job.board.here[0].wait->place.since_ns = kNow.monotonic_ns - kSecond / 2;
  EXPECT_THAT(find_culprits(job, kNow, kSecond), IsEmpty());
  EXPECT_EQ(find_culprits(job, kNow, 0).size(), 1u);
  job.processes[1] = ProcessState::kStopped;
  EXPECT_EQ(only(job).kind, "stopped");
}

TEST(Stall, TheDeadAndTheStopped) {
  Job job = job_of({2, 2, 0});
  job.processes[2] = ProcessState::kGone;
  EXPECT_EQ(only(job).kind, "died");
  EXPECT_EQ(only(job).line,
            fmt::format("rank 2 (pid 102 on node1) died in {}; ranks 0, 1 wait for it",
                        signature_of(12).to_string()));
  job.processes[2] = ProcessState::kStopped;
  EXPECT_EQ(only(job).kind, "stopped");
  job.processes[2] = ProcessState::kUnknown;
  EXPECT_EQ(only(job).kind, "cycle");
}

TEST(Stall, ACircleIsABug) {
  const Culprit culprit = only(job_of({1, 2, 3, 1}));
  EXPECT_EQ(culprit.kind, "cycle");
  EXPECT_THAT(culprit.line, HasSubstr("waits in a circle (ranks 1, 2, 3): this is a bug in Tutti"));
  EXPECT_EQ(only(job_of({0})).kind, "cycle");
}

TEST(Stall, AnotherHostAnotherCallAndNoWait) {
  EXPECT_EQ(only(job_of({6, 0})).kind, "elsewhere");
  EXPECT_THAT(
      only(job_of({6, 0})).line,
      HasSubstr("rank 6 is not on this host; run 'tutti-info ranks' on its host; ranks 0, 1"));
  Job job = job_of({1, kNoRank});
  EXPECT_EQ(only(job).kind, "busy");
  job.board.here[1].history[0].signature.count = 9;
  EXPECT_EQ(only(job).kind, "mismatch");
  EXPECT_THAT(only(job).line, HasSubstr("called all_reduce #12 count 9 "));
}

TEST(Stall, WhoLeftAndWhoGaveUp) {
  Job job = job_of({1, kNoRank});
  job.board.here[1].state = RankState::kFailed;
  EXPECT_EQ(only(job).kind, "gave up");
  job.board.here[1].history.clear();
  leave(job.board.here[1], 11);
  job.board.here[1].state = RankState::kLeft;
  job.processes[1] = ProcessState::kGone;  // in order
  EXPECT_EQ(only(job).kind, "left");
}

// In `gathering` since 90 s.
void gather(control::RankView& rank, Gathering gathering) {
  rank.gathering = gathering;
  rank.gathering_since_ns = 90 * kSecond;
}

TEST(Stall, WhoHasNotComeToAGathering) {
  Job job = job_of({kNoRank, kNoRank, kNoRank});
  for (control::RankView& rank : job.board.here) {
    rank.history.clear();
    leave(rank, 11);
    gather(rank, Gathering::kSplit);
  }
  EXPECT_THAT(find_culprits(job, kNow, kSecond), IsEmpty()) << "all have come";
  gather(job.board.here[2], Gathering::kNone);
  Culprit culprit = only(job);
  EXPECT_EQ(culprit.kind, "not come");
  EXPECT_EQ(culprit.line,
            fmt::format("rank 2 (pid 102 on node1) has not come to split; it left {} 19.0 s ago; "
                        "ranks 0, 1 wait for it",
                        signature_of(11).to_string()));
  job.processes[2] = ProcessState::kStopped;
  EXPECT_EQ(only(job).kind, "stopped");
  job.processes[2] = ProcessState::kGone;
  EXPECT_EQ(only(job).kind, "died");
  for (control::RankView& rank : job.board.here) {
    if (rank.rank < 2) gather(rank, Gathering::kShrink);
  }
  EXPECT_THAT(find_culprits(job, kNow, kSecond), IsEmpty()) << "the dead are not expected";
  EXPECT_THAT(find_culprits(job, kNow, 30 * kSecond), IsEmpty()) << "not for long";
}

// Ranks 0 and 1 split, rank 2 waits for rank 0 in an operation: both sides are told.
TEST(Stall, AGatheringAndAnOperationWaitForEachOther) {
  Job job = job_of({kNoRank, kNoRank, 0});
  for (const std::size_t i : {0u, 1u}) {
    job.board.here[i].history.clear();
    leave(job.board.here[i], 11);
    gather(job.board.here[i], Gathering::kWindow);
  }
  const auto culprits = find_culprits(job, kNow, kSecond);
  ASSERT_EQ(culprits.size(), 2u);
  EXPECT_THAT(culprits[0].line, HasSubstr("rank 0 (pid 100 on node1) has not entered"));
  EXPECT_THAT(culprits[0].line, HasSubstr("; it is in the registration of a window; rank 2 waits"));
  EXPECT_THAT(culprits[1].line, HasSubstr("rank 2 (pid 102 on node1) has not come to the "
                                          "registration of a window; it is in all_reduce #12"));
  EXPECT_THAT(culprits[1].waiting, ElementsAre(0, 1));
}

// Ranks that gave up did so for the rank that died, whatever they waited for.
TEST(Stall, WhoGaveUpBecauseOfAnother) {
  Job job = job_of({1, kNoRank, kNoRank});
  for (control::RankView& rank : job.board.here) rank.state = RankState::kFailed;
  job.board.poison = Poison{.culprit = 2, .reporter = 1};
  EXPECT_EQ(only(job).kind, "error");
  EXPECT_EQ(only(job).line,
            "rank 2 (pid 102 on node1) died; abort the communicator; rank 0 waited for it");
  job.processes[2] = ProcessState::kGone;
  EXPECT_EQ(only(job).kind, "died");
  EXPECT_EQ(only(job).rank, 2);
  job.board.poison->culprit = 1;
  EXPECT_EQ(only(job).kind, "gave up");
}

// Two ranks that hold up others are two culprits.
TEST(Stall, EachCulpritHasItsLine) {
  Job job = job_of({1, kNoRank, 3, kNoRank});
  job.processes[3] = ProcessState::kGone;
  const auto culprits = find_culprits(job, kNow, kSecond);
  ASSERT_EQ(culprits.size(), 2u);
  EXPECT_EQ(culprits[0].kind, "busy");
  EXPECT_EQ(culprits[1].kind, "died");
  EXPECT_THAT(culprits[1].line, EndsWith("; rank 2 waits for it"));
}

// Of a job whose ranks were all killed, being dead says nothing; who waited for whom does. The
// times are of another boot.
TEST(Stall, OfAJobThatIsOver) {
  Job job = job_of({1, kNoRank});
  job.board.boot = 6;
  job.board.made_monotonic_ns = 10 * kSecond;
  job.board.made_realtime_ns = 4000 * kSecond;
  job.processes.assign(2, ProcessState::kGone);
  job.board.here[1].history.clear();
  leave(job.board.here[1], 11);
  EXPECT_THAT(only(job).line, HasSubstr("has not entered"));
  // Left at 81 s, 71 s after the board was made, 1000 s ago.
  EXPECT_THAT(only(job).line, EndsWith(" 15 min ago; rank 0 waited for it"));
}

TEST(Stall, TheCommunicatorsOwnErrorWhereNobodyWaits) {
  Job job = job_of({kNoRank, kNoRank});
  job.board.poison = Poison{.culprit = 1, .reporter = 0};
  EXPECT_EQ(only(job).kind, "error");
  EXPECT_EQ(only(job).line, "rank 1 (pid 101 on node1) died; abort the communicator");
  job.board.poison->culprit = 5;
  EXPECT_EQ(only(job).line, "rank 5 (on another host) died; abort the communicator");
  job.board.poison->culprit = kNoRank;
  EXPECT_EQ(only(job).line, "rank -1 (unknown) died; abort the communicator");
}

// As many ranks as a board may have, all in one chain: a file that lies. Every link is followed
// once; with a search of all ranks for each of them this would take days.
TEST(Stall, ChainsOfAnyLengthAreFollowed) {
  constexpr Rank kMany = 16'384;
  std::vector<Rank> peers(kMany, kNoRank);
  for (Rank rank = 0; rank + 1 < kMany; ++rank) peers[static_cast<std::size_t>(rank)] = rank + 1;
  const Culprit busy = only(job_of(peers));
  EXPECT_EQ(busy.kind, "busy");
  EXPECT_EQ(busy.rank, kMany - 1);
  EXPECT_EQ(busy.waiting.size(), std::size_t{kMany - 1});
  peers.back() = kMany / 2;
  const Culprit cycle = only(job_of(peers));
  EXPECT_EQ(cycle.kind, "cycle");
  EXPECT_EQ(cycle.rank, kMany / 2);
  EXPECT_EQ(cycle.waiting.size(), std::size_t{kMany});
}

TEST(Stall, TheErrorOfAFarRankNamesNoOther) {
  Job job = job_of({kNoRank});
  job.board.ranks = 1 << 20;
  job.board.poison = Poison{.culprit = (1 << 20) - 1, .reporter = 0};
  EXPECT_THAT(error_text(job.board), HasSubstr("rank 1048575 (on another host) died"));
  job.board.poison->culprit = kNoRank;
  EXPECT_THAT(error_text(job.board), HasSubstr("rank -1 (unknown) died"));
}

TEST(Ranks, NoJobIsOneLine) {
  EXPECT_EQ(ranks_text({}, kNow, {}), "no process of this host has a Tutti communicator\n");
  EXPECT_EQ(ranks_text({.hidden = 3}, kNow, {}),
            "no process of this host has a Tutti communicator; 3 processes of other users could "
            "not be examined; run it as root to include them\n");
}

TEST(Ranks, DurationsAreReadable) {
  EXPECT_EQ(duration_text(0), "0 ms");
  EXPECT_EQ(duration_text(14 * kSecond + kSecond / 5), "14.2 s");
  EXPECT_EQ(duration_text(600 * kSecond), "10 min");
  EXPECT_EQ(duration_text(INT64_MAX), "106752 days");
}

}  // namespace
}  // namespace tutti::info
