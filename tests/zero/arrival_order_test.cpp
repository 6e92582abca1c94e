// SPDX-License-Identifier: Apache-2.0
// The order of asynchronous updates, played with workers that push at random: the script is kept,
// the bound holds, and there is always somebody to wait for.
#include "zero/arrival_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/seed.hpp"

namespace tutti::zero {
namespace {

using Act = ArrivalOrder::Act;

struct Game {
  int workers = 1, bound = Servers::kUnbounded, steps = 1;  // of each worker
  std::vector<int> script = {};
};

// Plays it: whoever has parameters pushes, or finishes after its last step, when `choose` says so.
template <typename Choose>
std::vector<Arrival> play(const Game& game, Choose&& choose) {
  ArrivalOrder order(game.workers, game.bound, game.script);
  std::vector<int> left(static_cast<std::size_t>(game.workers), game.steps), computing;
  for (;;) {
    const ArrivalOrder::Decision decision = order.next();
    if (decision.act == Act::kEnd) return order.arrivals();
    if (decision.act == Act::kGive) computing.push_back(decision.worker);
    if (decision.act != Act::kWait) continue;
    if (computing.empty()) {
      ADD_FAILURE() << "nobody can be waited for after " << order.arrivals().size() << " updates";
      return order.arrivals();
    }
    const std::size_t chosen = choose(computing.size());
    const int worker = computing[chosen];
    computing.erase(computing.begin() + static_cast<std::ptrdiff_t>(chosen));
    int& steps = left[static_cast<std::size_t>(worker)];
    if (steps-- > 0)
      order.pushed(worker);
    else
      order.finished(worker);
  }
}

TEST(ArrivalOrder, AScriptSaysWhatIsStale) {
  const auto first = [](std::size_t) { return std::size_t{0}; };
  EXPECT_EQ(play({.workers = 2, .steps = 2, .script = {0, 0, 1}}, first),
            (std::vector<Arrival>{{0, 0}, {0, 0}, {1, 2}, {1, 0}}));
  EXPECT_EQ(play({.workers = 3, .steps = 1, .script = {2, 1, 0}}, first),
            (std::vector<Arrival>{{2, 0}, {1, 1}, {0, 2}}));
  // The same with a bound: worker 1 gets its parameters when they will not be too old.
  EXPECT_EQ(play({.workers = 2, .bound = 0, .steps = 2, .script = {0, 0, 1}}, first),
            (std::vector<Arrival>{{0, 0}, {0, 0}, {1, 0}, {1, 0}}));
}

TEST(ArrivalOrder, WithoutABoundWhoComesFirstIsFirst) {
  ArrivalOrder order(2, Servers::kUnbounded, {});
  for (const int worker : {0, 1}) {
    const auto given = order.next();
    EXPECT_EQ(given.act, Act::kGive);
    EXPECT_EQ(given.worker, worker);
  }
  EXPECT_EQ(order.next().act, Act::kWait);
  order.pushed(1);
  EXPECT_EQ(order.next().act, Act::kApply);
  EXPECT_EQ(order.next().act, Act::kGive);
  order.pushed(1);
  EXPECT_EQ(order.next().worker, 1);
  EXPECT_EQ(order.next().act, Act::kGive);
  order.pushed(0);
  EXPECT_EQ(order.next().act, Act::kApply);
  EXPECT_EQ(order.arrivals(), (std::vector<Arrival>{{1, 0}, {1, 0}, {0, 2}}));
}

TEST(ArrivalOrder, AFastWorkerWaitsForTheBound) {
  ArrivalOrder order(2, 1, {});
  EXPECT_EQ(order.next().act, Act::kGive);
  EXPECT_EQ(order.next().act, Act::kGive);
  order.pushed(1);
  EXPECT_EQ(order.next().act, Act::kApply);  // worker 0 has the deadline 1 and can still be next
  EXPECT_EQ(order.next().act, Act::kGive);
  order.pushed(1);
  EXPECT_EQ(order.next().act, Act::kWait);  // else worker 0 would be 2 behind
  order.pushed(0);
  EXPECT_EQ(order.next().worker, 0);
}

TEST(ArrivalOrder, AScriptThatNamesWhoHasFinishedIsAnError) {
  ArrivalOrder order(1, Servers::kUnbounded, {0});
  EXPECT_EQ(order.next().act, Act::kGive);
  order.finished(0);
  try {
    static_cast<void>(order.next());
    FAIL() << "it goes on";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "update 0 of Servers::arrivals is worker 0's, which has finished");
  }
}

TEST(ArrivalOrder, AfterAnErrorEverybodyIsRefusedOnce) {
  ArrivalOrder order(4, 2, {});  // three get parameters, one waits for them
  for (int i = 0; i < 3; ++i) EXPECT_EQ(order.next().act, Act::kGive);
  order.pushed(0);
  order.finished(1);
  order.fail();
  const auto expect_next = [&](Act act, int worker) {
    const auto decision = order.next();
    EXPECT_EQ(decision.act, act);
    EXPECT_EQ(decision.worker, worker);
  };
  expect_next(Act::kDrop, 0);
  expect_next(Act::kRefuse, 1);
  expect_next(Act::kRefuse, 3);
  EXPECT_EQ(order.next().act, Act::kWait);
  order.pushed(2);
  expect_next(Act::kDrop, 2);
  EXPECT_EQ(order.next().act, Act::kEnd);
  EXPECT_TRUE(order.arrivals().empty());
}

TEST(ArrivalOrder, RandomGamesKeepScriptAndBound) {
  std::mt19937 random(draw_seed());
  const auto below = [&](int end) {
    return std::uniform_int_distribution<int>(0, end - 1)(random);
  };
  int stale = 0, at_bound = 0;
  for (int round = 0; round < 3000; ++round) {
    Game game{.workers = 1 + below(6), .bound = below(8) - 1, .steps = 1 + below(5)};
    std::vector<int> all;  // every push there will be
    for (int worker = 0; worker < game.workers; ++worker)
      all.insert(all.end(), static_cast<std::size_t>(game.steps), worker);
    std::ranges::shuffle(all, random);
    game.script.assign(all.begin(), all.begin() + below(static_cast<int>(all.size()) + 1));
    const auto arrivals = play(game, [&](std::size_t end) {
      return static_cast<std::size_t>(below(static_cast<int>(end)));
    });
    ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
    ASSERT_EQ(arrivals.size(), all.size());
    for (std::size_t i = 0; i < arrivals.size(); ++i) {
      if (i < game.script.size()) {
        ASSERT_EQ(arrivals[i].worker, game.script[i]) << round;
      }
      ASSERT_GE(arrivals[i].staleness, 0);
      if (game.bound >= 0) {
        ASSERT_LE(arrivals[i].staleness, game.bound) << round << ' ' << i;
      }
      stale += arrivals[i].staleness > 0 ? 1 : 0;
      at_bound += game.bound > 0 && arrivals[i].staleness == game.bound ? 1 : 0;
    }
  }
  EXPECT_GT(stale, 1000);
  EXPECT_GT(at_bound, 100);  // the bound is no stricter than it says
}

}  // namespace
}  // namespace tutti::zero
