// SPDX-License-Identifier: Apache-2.0
// The agreement of a shrink among simulated ranks: every order of their steps may come up, and any
// rank may die between any two. Whoever lives succeeds, all with the same attempt. Also what
// travels, for thousands of members. SHRINK_SEEDS sets how many jobs are played (default 5000).
#include "comm/shrink_decision.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "control/messages.hpp"

namespace tutti {
namespace {

std::vector<PeerInfo> make_peers(Rank ranks) {
  std::vector<PeerInfo> peers;
  for (Rank rank = 0; rank < ranks; ++rank)
    peers.push_back({.rank = rank, .pid = 1 + rank, .host = "simulated"});
  return peers;
}

// A job whose ranks shrink. Each is the state that a rank of shrink.cpp keeps, driven a step at a
// time.
class SimulatedJob {
 public:
  SimulatedJob(unsigned seed, Rank ranks) : random_(seed), ranks_(ranks) {
    for (Rank rank = 0; rank < ranks; ++rank) all_.push_back(std::make_unique<One>(rank, ranks));
  }

  // Empty: all that live have succeeded, with one attempt that has all of them as members.
  std::string play() {
    const auto deaths_in = 1 + random_() % 200;  // steps, on the mean
    Rank may_die = static_cast<Rank>(random_() % all_.size());
    for (int steps = 0; steps < 20'000; ++steps) {
      if (std::ranges::all_of(all_, [](const auto& one) { return one->dead || one->done; }))
        return judge();
      One& one = *all_[random_() % all_.size()];
      if (one.dead) continue;
      if (may_die > 0 && random_() % deaths_in == 0) {
        --may_die;
        one.dead = true;
        continue;
      }
      if (one.done)
        one.closed |= random_() % 8 == 0;  // it destroys the old communicator
      else if (const std::string wrong = step(one); !wrong.empty())
        return wrong;
    }
    return "it does not end";
  }

 private:
  struct One {
    One(Rank own, Rank ranks) : rank(own), decision(own, make_peers(ranks)) {}
    const Rank rank;
    ShrinkDecision decision;
    ShrinkReport report{.ready = true, .excluded = hash_ranks({})};
    Members members;
    bool opened = false, joining = false, done = false, dead = false, closed = false;
  };

  [[nodiscard]] bool is_gone(const One& one) const { return one.dead || one.closed; }

  std::string step(One& one) {
    if (!one.opened) {
      one.opened = true;
      one.decision.open({});
    }
    if (random_() % 4 == 0) notice(one);
    if (one.joining) return join(one), std::string();
    std::vector<Rank> living;
    for (const auto& other : all_)
      if (!one.decision.is_gone(other->rank)) living.push_back(other->rank);
    one.report.gone.assign(one.decision.gone().begin(), one.decision.gone().end());
    One& leader = *all_[static_cast<std::size_t>(living.front())];
    if (leader.rank == one.rank) return lead(one, living);
    if (is_gone(leader)) return one.decision.mark_gone(leader.rank), std::string();
    const auto report = decode_report(encode(one.report), ranks_);
    if (!report) return "a report that cannot be read";
    const auto answer = leader.decision.hear(one.rank, *report);
    if (!answer || random_() % 16 == 0) return {};  // to wait; or lost, with its connection
    return follow(one, decode_answer(encode(*answer), ranks_));
  }

  // Of a death that it did not know of.
  void notice(One& one) {
    const One& other = *all_[random_() % all_.size()];
    if (is_gone(other) && other.rank != one.rank) one.decision.mark_gone(other.rank);
  }

  std::string lead(One& one, const std::vector<Rank>& living) {
    if (const auto answer = one.decision.hear(one.rank, one.report)) return follow(one, answer);
    if (const auto error = one.decision.disagreement()) return error->message;
    const Rank missing = one.decision.missing(living);
    if (missing == kNoRank)
      one.decision.decide(living);
    else if (is_gone(*all_[static_cast<std::size_t>(missing)]))
      one.decision.mark_gone(missing);
    return {};
  }

  std::string follow(One& one, const std::optional<ShrinkAnswer>& answer) {
    if (!answer) return "an answer that cannot be read";
    switch (answer->verdict) {
      case ShrinkVerdict::kJoin:
        one.report.attempt = answer->attempt;
        one.members = answer->members;
        one.decision.enter(answer->attempt, answer->members);
        one.joining = true;
        return {};
      case ShrinkVerdict::kPrepare:
        one.report.phase = ShrinkPhase::kPrepared;
        return {};
      case ShrinkVerdict::kCommit:
        one.done = true;
        one.decision.commit(answer->attempt);
        one.decision.close({});
        return {};
      case ShrinkVerdict::kAgain:
        one.report.phase = ShrinkPhase::kNew;
        return {};
      default:
        return "rank " + std::to_string(one.rank) + " is refused: " + answer->error.message;
    }
  }

  // Where a member dies, some may have joined and some not.
  void join(One& one) {
    const bool whole = std::ranges::none_of(one.members.list, [&](const ChildMember& member) {
      return all_[static_cast<std::size_t>(member.parent)]->dead;
    });
    one.joining = false;
    if (whole || random_() % 2 == 0) one.report.phase = ShrinkPhase::kJoined;
  }

  [[nodiscard]] std::string judge() const {
    const One* first = nullptr;
    for (const auto& one : all_) {
      if (!one->done) continue;
      if (first == nullptr) first = one.get();
      if (one->report.attempt != first->report.attempt ||
          one->members.key.session != first->members.key.session)
        return "ranks " + std::to_string(first->rank) + " and " + std::to_string(one->rank) +
               " are in different jobs";
    }
    for (const auto& one : all_)
      if (!one->dead && std::ranges::find(first->members.list, one->rank, &ChildMember::parent) ==
                            first->members.list.end())
        return "rank " + std::to_string(one->rank) + " is no member";
    return {};
  }

  std::mt19937 random_;
  const Rank ranks_;
  std::vector<std::unique_ptr<One>> all_;
};

TEST(ShrinkDecision, AllThatLiveSucceedWithOneJobWhoeverDiesWhenever) {
  const char* const text = std::getenv("SHRINK_SEEDS");
  const unsigned seeds = text != nullptr ? static_cast<unsigned>(std::atoi(text)) : 5'000;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    SimulatedJob job(seed, static_cast<Rank>(1 + seed % 7));
    ASSERT_EQ(job.play(), "") << "seed " << seed;
  }
}

TEST(ShrinkDecision, ThousandsOfMembersComeInSeveralAnswers) {
  constexpr Rank kRanks = 4096;
  ShrinkDecision decision(0, make_peers(kRanks));
  decision.open({});
  std::vector<Rank> living;
  const auto report_of = [](Rank rank) {
    return ShrinkReport{.ready = true,
                        .excluded = hash_ranks({}),
                        .address = {"unix:@" + std::string(32, 'a') + std::to_string(rank),
                                    "tcp:[fd00::1]:" + std::to_string(rank)}};
  };
  for (Rank rank = 0; rank < kRanks; ++rank) {
    if (rank % 100 == 50) continue;
    living.push_back(rank);
    EXPECT_FALSE(decision.hear(rank, report_of(rank)));
  }
  ASSERT_EQ(decision.missing(living), kNoRank);
  decision.decide(living);
  std::vector<ChildMember> list;
  int packets = 0;
  for (std::uint32_t ranks = 1; list.size() < ranks; ++packets) {
    ShrinkReport report = report_of(7);
    report.first = static_cast<std::uint32_t>(list.size());
    const auto answer = decision.hear(7, report);
    ASSERT_TRUE(answer);
    const std::vector<std::byte> packet = encode(*answer);
    ASSERT_LE(packet.size(), control::kMaxPayloadBytes);
    const auto page = decode_answer(packet, kRanks);
    ASSERT_TRUE(page);
    ranks = page->ranks;
    list.insert(list.end(), page->members.list.begin(), page->members.list.end());
  }
  EXPECT_GT(packets, 1);
  ASSERT_EQ(list.size(), living.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list[i].parent, living[i]);
    EXPECT_EQ(list[i].address.tcp, "tcp:[fd00::1]:" + std::to_string(living[i]));
  }
}

// The answer may come when the question is over: the same call asks again and gets it again. Its
// next call is not told of what became of the one before.
TEST(ShrinkDecision, AFailureIsToldAgainToTheCallThatAsksAgain) {
  ShrinkDecision leader(0, make_peers(3));
  leader.open({});
  ShrinkReport report{.ready = true, .excluded = hash_ranks({}), .address = {"first call", ""}};
  EXPECT_FALSE(leader.hear(1, report));
  leader.fail({Code::kTimeout, "rank 2 did not come", 2});
  ASSERT_TRUE(leader.hear(1, report));  // lost
  leader.close(Error{Code::kTimeout, "rank 2 did not come", 2});
  report.late = true;
  const auto again = leader.hear(1, report);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->verdict, ShrinkVerdict::kFailed);
  EXPECT_EQ(again->error.culprit, 2);
  report.address.local = "second call";
  const auto next = leader.hear(1, report);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->verdict, ShrinkVerdict::kAbsent);
}

TEST(ShrinkDecision, WhatIsDamagedIsRefused) {
  const std::vector<std::byte> report = encode(ShrinkReport{.attempt = 3, .gone = {1}});
  EXPECT_TRUE(decode_report(report, 2));
  EXPECT_FALSE(decode_report(report, 1)) << "a rank that does not exist";
  EXPECT_FALSE(decode_report(std::span(report).first(report.size() - 1), 2));
  EXPECT_FALSE(decode_report({}, 2));
  const std::vector<std::byte> answer = encode(ShrinkAnswer{
      .verdict = ShrinkVerdict::kJoin, .ranks = 1, .members = {.key = {}, .list = {{0, {}}}}});
  EXPECT_TRUE(decode_answer(answer, 1));
  EXPECT_FALSE(decode_answer(answer, 0));
  EXPECT_FALSE(decode_answer(std::span(answer).first(answer.size() - 1), 1));
  EXPECT_FALSE(decode_answer({}, 1));
}

}  // namespace
}  // namespace tutti
