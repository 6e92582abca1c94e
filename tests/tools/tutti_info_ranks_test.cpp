// SPDX-License-Identifier: Apache-2.0
// `tutti-info ranks` beside real jobs of forked ranks: one that never calls, one that is stopped,
// one that is killed; several communicators; what it prints, parsed.
#include <signal.h>

#include <functional>

#include "base/host.hpp"
#include "ranks_job.hpp"

namespace tutti::test {
namespace {

using ::testing::AllOf;
using testing::ForkedRank;
using ::testing::HasSubstr;
using ::testing::Matcher;
using ::testing::MatchesRegex;

std::string who(const Json& job, int rank) {
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(pid_of_rank(job, rank)) +
         " on " + host_name() + ")";
}

// Asks until the tool names one culprit, in a line that `wanted` accepts: a rank that gets no core
// may only now see what another one has written of it.
bool names_culprit(const std::string& session, const Matcher<std::string>& wanted) {
  Outcome outcome;
  for (const Deadline deadline = Deadline::in_ms(kAwaitMs); !deadline.passed();) {
    outcome = run_info("ranks --after 0");
    const auto lines = lines_of(outcome.output, session, "  culprit: ");
    if (outcome.status == 0 && lines.size() == 1 && ::testing::Value(lines[0], wanted)) return true;
  }
  ADD_FAILURE() << "no culprit " << ::testing::DescribeMatcher<std::string>(wanted)
                << "; last (status " << outcome.status << "): " << outcome.output;
  return false;
}

// A job whose ranks make one call and then run `body`; one process more looks at them.
void run_observed(int ranks, const std::function<void()>& observe,
                  const std::function<void(int, tuttiComm_t)>& body) {
  testing::expect_all_passed(testing::run_forked(
      ranks + 1,
      [&](const ForkedRank& self) {
        if (self.rank == ranks) return observe();
        const tuttiComm_t comm = join({self.rank, ranks, self.message});
        float value = 1;
        EXPECT_EQ(sum(comm, value), tuttiSuccess);
        body(self.rank, comm);
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      with_unique_id()));
}

TEST(TuttiInfoRanks, NamesTheRankThatNeverCalls) {
  constexpr int kRanks = 4;
  const Gate gate;
  const auto observe = [&] {
    const Json job = await_job([](const Json& seen) {
      return has_culprit(seen, "not entered", 3, {0, 1, 2}) && is_out(seen, 3);
    });
    ASSERT_FALSE(job.is_null());
    EXPECT_EQ(job["here"].size(), 4u);
    EXPECT_TRUE(job["error"].is_null());
    const Json& waiter = job["here"][0];
    EXPECT_EQ(waiter["state"], "alive");
    EXPECT_EQ(waiter["process"], "runs");
    EXPECT_TRUE(waiter["inside"]);
    EXPECT_TRUE(waiter.contains("waits"));
    EXPECT_EQ(waiter["history"].size(), 2u);
    EXPECT_EQ(waiter["history"][1]["collective"], "all_reduce");
    EXPECT_EQ(waiter["history"][1]["count"], 1000u);
    EXPECT_FALSE(job["here"][3].contains("waits"));
    EXPECT_TRUE(names_culprit(
        job["session"],
        AllOf(HasSubstr(who(job, 3) + " has not entered all_reduce #2 count 1000 float sum "),
              HasSubstr("; it left all_reduce #1 count 1 float sum "),
              MatchesRegex(".* ago; ranks 0, 1, 2 wait for it"))));
    gate.open(1);
  };
  run_observed(kRanks, observe, [&](int rank, tuttiComm_t comm) {
    float value = 1;
    if (rank == 3) gate.pass();
    EXPECT_EQ(sum(comm, value, 1000), tuttiSuccess);
  });
}

TEST(TuttiInfoRanks, NamesTheRankThatIsStopped) {
  constexpr int kRanks = 3;
  const Gate gate;
  const auto observe = [&] {
    Json job = await_job([](const Json& seen) { return has_come(seen, kRanks, 2); });
    ASSERT_FALSE(job.is_null());
    const std::string session = job["session"];
    const pid_t pid = pid_of_rank(job, 1);
    ASSERT_EQ(::kill(pid, SIGSTOP), 0);
    job = await_job(
        [](const Json& seen) {
          return has_culprit(seen, "stopped", 1, {0, 2});
        },
        session);
    if (!job.is_null()) {
      EXPECT_EQ(job["here"][1]["process"], "stopped");
      EXPECT_TRUE(names_culprit(session, HasSubstr(who(job, 1) + " is stopped (SIGSTOP")));
    }
    EXPECT_EQ(::kill(pid, SIGCONT), 0);
    gate.open(1);
  };
  testing::expect_all_passed(testing::run_forked(
      kRanks + 1,
      [&](const ForkedRank& self) {
        if (self.rank == kRanks) return observe();
        const tuttiComm_t comm = join({self.rank, kRanks, self.message});
        EXPECT_TRUE(sum_until_open(comm, self.rank, gate));
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      with_unique_id()));
}

TEST(TuttiInfoRanks, NamesTheRankThatDoesNotComeToASplit) {
  constexpr int kRanks = 3;
  const Gate gate;
  const auto observe = [&] {
    const Json job = await_job([](const Json& seen) {
      return has_culprit(seen, "not come", 1, {0, 2}) && is_out(seen, 1);
    });
    ASSERT_FALSE(job.is_null());
    EXPECT_EQ(job["here"][0]["gathering"]["name"], "split");
    EXPECT_FALSE(job["here"][1].contains("gathering"));
    EXPECT_TRUE(
        names_culprit(job["session"], HasSubstr(who(job, 1) + " has not come to split; it left "
                                                              "all_reduce #1 ")));
    EXPECT_THAT(run_info("ranks").output, HasSubstr(" in split "));
    gate.open(1);
  };
  run_observed(kRanks, observe, [&](int rank, tuttiComm_t comm) {
    if (rank == 1) gate.pass();
    tuttiComm_t part = nullptr;
    EXPECT_EQ(tuttiCommSplit(comm, 0, 0, &part, nullptr), tuttiSuccess);
    EXPECT_EQ(tuttiCommDestroy(part), tuttiSuccess);
  });
}

// What the dead rank did last is read through those that live.
TEST(TuttiInfoRanks, NamesTheRankThatWasKilled) {
  constexpr int kRanks = 4, kVictim = 2;
  const Gate never, gate;
  const auto observe = [&] {
    Json job = await_job([](const Json& seen) { return has_come(seen, kRanks, 70); });
    ASSERT_FALSE(job.is_null());
    const std::string session = job["session"], culprit = who(job, kVictim);
    ASSERT_EQ(::kill(pid_of_rank(job, kVictim), SIGKILL), 0);
    job = await_job(
        [&](const Json& seen) {
          for (const Json& rank : seen["here"])
            if (rank["state"] != (rank["rank"] == kVictim ? "alive" : "failed")) return false;
          return seen["here"][kVictim]["process"] == "gone";
        },
        session);
    ASSERT_FALSE(job.is_null());
    EXPECT_THAT(job["error"], HasSubstr(culprit + " died"));
    EXPECT_EQ(job["culprits"].size(), 1u) << job.dump(1);
    EXPECT_EQ(job["culprits"][0]["rank"], kVictim);
    EXPECT_TRUE(names_culprit(session, HasSubstr(culprit + " died")));
    // 63 at least: the record of one operation may have been in the making.
    EXPECT_GE(job["here"][kVictim]["history"].size(), 63u);
    const auto lines = lines_of(run_info("ranks --history 3").output, session, "       ");
    EXPECT_EQ(lines.size(), 3u * kRanks);
    gate.open(kRanks - 1);
  };
  testing::expect_all_passed(testing::run_forked(
                                 kRanks + 1,
                                 [&](const ForkedRank& self) {
                                   if (self.rank == kRanks) return observe();
                                   const tuttiComm_t comm = join({self.rank, kRanks, self.message});
                                   EXPECT_FALSE(sum_until_open(comm, self.rank, never));
                                   gate.pass();
                                   EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
                                 },
                                 with_unique_id()),
                             {kVictim});
}

TEST(TuttiInfoRanks, ListsCommunicatorsApartAndForgetsThemWhenTheyEnd) {
  constexpr int kRanks = 2;
  const Gate gate;
  testing::ForkOptions options;
  options.after_fork = [] {
    const auto one = with_unique_id().after_fork;
    return one() + one();
  };
  const auto observe = [&] {
    const Json first = await_job([](const Json& seen) { return has_come(seen, kRanks, 1); });
    ASSERT_FALSE(first.is_null());
    const Json second = await_job([&](const Json& seen) {
      return seen["session"] != first["session"] && has_come(seen, kRanks, 0);
    });
    ASSERT_FALSE(second.is_null());
    EXPECT_EQ(pid_of_rank(first, 1), pid_of_rank(second, 1));
    gate.open(kRanks);
  };
  testing::expect_all_passed(testing::run_forked(
      kRanks + 1,
      [&](const ForkedRank& self) {
        if (self.rank == kRanks) return observe();
        const std::size_t half = self.message.size() / 2;
        const tuttiComm_t comm = join({self.rank, kRanks, self.message.substr(0, half)});
        float value = 1;
        EXPECT_EQ(sum(comm, value), tuttiSuccess);
        const tuttiComm_t other = join({self.rank, kRanks, self.message.substr(half)});
        gate.pass();
        EXPECT_EQ(tuttiCommDestroy(other), tuttiSuccess);
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
        const Json all = Json::parse(run_info("ranks --json").output, nullptr, false);
        ASSERT_FALSE(all.is_discarded());
        for (const Json& job : all["jobs"])
          for (const Json& rank : job["here"])
            if (rank["pid"] == ::getpid()) {
              EXPECT_EQ(rank["state"], "left") << job.dump(1);
            }
      },
      options));
}

TEST(TuttiInfoRanks, WrongUsageAndFilesThatAreNone) {
  EXPECT_EQ(run_info("ranks --after soon").status, 2);
  EXPECT_EQ(run_info("ranks --after -1").status, 2);
  EXPECT_EQ(run_info("ranks --frobnicate").status, 2);
  const auto refused = [](const std::string& file) {
    const Outcome outcome = run_info("ranks " + file);
    EXPECT_EQ(outcome.status, 1) << file;
    EXPECT_THAT(outcome.output, ::testing::StartsWith("tutti-info: "));
    EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
    return outcome.output;
  };
  EXPECT_THAT(refused("/nonexistent.board"), HasSubstr("cannot open /nonexistent.board"));
  for (const char* file : {"/dev/null", "/etc/passwd", "/", TUTTI_INFO})
    EXPECT_THAT(refused(file), HasSubstr("not a status page of Tutti")) << file;
  EXPECT_EQ(run_info("ranks >/dev/full").status, 1);
}

}  // namespace
}  // namespace tutti::test
