// SPDX-License-Identifier: Apache-2.0
// What every family must keep, at every rank count. A new family is tested here without a line.
#include <gtest/gtest.h>

#include <deque>

#include "counts.hpp"
#include "samples.hpp"
#include "schedule/space_time.hpp"

namespace tutti {
namespace {

class Family : public testing::TestWithParam<const Algorithm*> {
 protected:
  static std::vector<std::int32_t> rank_counts() {
    std::vector<std::int32_t> counts;
    for (std::int32_t p = 1; p <= 33; ++p) counts.push_back(p);
    for (const std::int32_t p : {47, 48, 63, 64, 65, 96}) counts.push_back(p);
    return counts;
  }
  template <typename Check>
  void at_every_rank_count(Check check) {
    for (const std::int32_t p : rank_counts()) {
      SCOPED_TRACE(testing::Message() << GetParam()->name << ", " << p << " ranks");
      check(samples::built(GetParam()->name, p));
      if (HasFatalFailure()) return;
    }
  }
};

TEST_P(Family, ShapeDeclaresExactlyWhatTheProgramsUse) {
  at_every_rank_count([](const Schedule& schedule) {
    const counts::Connections connections(schedule);
    EXPECT_EQ(schedule.shape.max_incoming, connections.max_incoming());
    EXPECT_EQ(schedule.shape.max_per_pair, connections.max_per_pair());
    // A schedule without messages declares the default, 1.
    EXPECT_EQ(schedule.shape.max_message_chunks, std::max(1U, connections.max_message_chunks));
    for (const auto& [connection, messages] : connections.sends)
      EXPECT_LT(std::get<2>(connection), schedule.shape.tags);
    EXPECT_EQ(static_cast<std::size_t>(schedule.shape.ranks), schedule.ranks.size());
    EXPECT_EQ(schedule.shape.algorithm, GetParam()->name);
  });
}

TEST_P(Family, EveryConnectionBalancesAndBelongsToOneLaneAtEachEnd) {
  at_every_rank_count([](const Schedule& schedule) {
    const counts::Connections connections(schedule);
    EXPECT_EQ(connections.sends, connections.receives);
    for (const auto& [connection, lanes] : connections.sending_lanes) EXPECT_EQ(lanes.size(), 1U);
    for (const auto& [connection, lanes] : connections.receiving_lanes) EXPECT_EQ(lanes.size(), 1U);
  });
}

TEST_P(Family, RunsToItsEndAndNoMessageIsLeft) {
  at_every_rank_count([](const Schedule& schedule) {
    const SpaceTime run = space_time(schedule);
    EXPECT_EQ(run.stuck_steps, 0U);
    EXPECT_EQ(run.lost_messages, 0U);
  });
}

TEST_P(Family, HasNoEmptyLaneAndFinishesEveryChunkAlike) {
  at_every_rank_count([](const Schedule& schedule) {
    std::uint64_t finished = 0;
    for (const RankProgram& program : schedule.ranks) {
      for (const Lane& lane : program.lanes) EXPECT_FALSE(lane.steps.empty());
      finished += counts::of(program).finished_chunks;
    }
    // Completed by one rank and then copied, or by several ranks for themselves.
    EXPECT_EQ(finished % schedule.shape.chunks, 0U);
    EXPECT_GE(finished, schedule.shape.chunks);
    EXPECT_LE(finished, std::uint64_t{schedule.shape.chunks} * schedule.ranks.size());
  });
}

// Runs the schedule on vectors that count each rank's contribution: the sum is the proof.
class ContributionCount {
 public:
  explicit ContributionCount(const Schedule& schedule)
      : schedule_(schedule),
        ranks_(schedule.ranks.size()),
        output_(ranks_, std::vector<Value>(schedule.shape.chunks)) {}

  void run() {
    // The events of space_time lie in an order in which they can run.
    for (const Event& event : space_time(schedule_).events) {
      const auto rank = static_cast<std::size_t>(event.rank);
      const Step& step = schedule_.ranks[rank].lanes[event.lane].steps[event.step];
      std::vector<Value> reduced(step.sources.front().span.count(), Value(ranks_, 0));
      for (const Operand& source : step.sources) add(reduced, source, event.rank);
      for (const Operand& destination : step.destinations) {
        if (destination.kind == OperandKind::kSend) {
          wire_[{event.rank, destination.peer, destination.tag}].push_back(reduced);
          continue;
        }
        ASSERT_EQ(destination.buffer, BufferKind::kOutput);
        for (std::uint32_t k = 0; k < reduced.size(); ++k)
          output_[rank][destination.span.at(k, schedule_.shape.chunks)] = reduced[k];
      }
    }
    const Value each_once(ranks_, 1);
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      for (std::uint32_t c = 0; c < schedule_.shape.chunks; ++c)
        ASSERT_EQ(output_[rank][c], each_once) << "rank " << rank << " chunk " << c;
  }

 private:
  using Value = std::vector<std::uint32_t>;  // how often each rank's contribution is in it

  void add(std::vector<Value>& reduced, const Operand& source, Rank rank) {
    if (source.kind == OperandKind::kLocal) {
      const auto own = static_cast<std::size_t>(rank);
      for (std::uint32_t k = 0; k < reduced.size(); ++k) {
        const std::uint32_t chunk = source.span.at(k, schedule_.shape.chunks);
        for (std::size_t r = 0; r < ranks_; ++r)
          reduced[k][r] += source.buffer == BufferKind::kInput ? (r == own ? 1 : 0)
                           : output_[own][chunk].empty()       ? 0
                                                               : output_[own][chunk][r];
      }
      return;
    }
    auto& queue = wire_[{source.peer, rank, source.tag}];
    ASSERT_FALSE(queue.empty());
    ASSERT_EQ(queue.front().size(), reduced.size());
    for (std::size_t k = 0; k < reduced.size(); ++k)
      for (std::size_t r = 0; r < ranks_; ++r) reduced[k][r] += queue.front()[k][r];
    queue.pop_front();
  }

  const Schedule& schedule_;
  std::size_t ranks_;
  std::vector<std::vector<Value>> output_;
  std::map<counts::Connection, std::deque<std::vector<Value>>> wire_;
};

TEST_P(Family, EveryOutputHasEveryContributionOnce) {
  at_every_rank_count([](const Schedule& schedule) { ContributionCount(schedule).run(); });
}

// Whoever says so is chosen for reductions that are not commutative; whoever does not say so though
// it is true is missed there.
TEST_P(Family, SaysWhetherItReducesInTheOrderOfRanks) {
  using enum Collective;
  for (const Collective collective : {kAllReduce, kReduce, kReduceScatter}) {
    bool always = true;
    for (std::int32_t p = 1; p <= 17; ++p) {
      const std::int32_t roots = info_of(collective).rooted ? p : 1;
      for (Rank root = 0; root < roots; ++root) {
        const Problem problem{.collective = collective, .ranks = p, .root = root};
        if (!GetParam()->supports(problem)) continue;
        const bool proved = counts::proof_of(*build_schedule(*GetParam(), problem)).in_rank_order;
        always = always && proved;
        if (GetParam()->in_rank_order(problem)) {
          EXPECT_TRUE(proved) << p << " ranks, root " << root;
        }
      }
    }
    const Problem many{.collective = collective, .ranks = 17};
    if (GetParam()->supports(many)) {
      EXPECT_EQ(GetParam()->in_rank_order(many), always) << name_of(collective);
    }
  }
}

// Those of the list are proved in proved_test.cpp.
TEST_P(Family, IsProvedBetweenTheListedCounts) {
  for (const std::int32_t p : {47, 63, 65})
    EXPECT_EQ(counts::proof_of(samples::built(GetParam()->name, p)).minimal_slots, 2U) << p;
}

TEST_P(Family, OneProgramAloneCostsItsOwnSteps) {
  // Far more ranks than a whole schedule is built for: only the rank's own steps may be made.
  const Problem problem{.collective = Collective::kAllReduce, .ranks = 100'000};
  const RankProgram program = GetParam()->program(problem, 77'777);
  std::uint64_t operands = 0;
  for (const Lane& lane : program.lanes)
    for (const Step& step : lane.steps) operands += step.sources.size() + step.destinations.size();
  EXPECT_GT(operands, 0U);
  EXPECT_LE(operands, 8U * 100'000);
  EXPECT_EQ(GetParam()->shape(problem).ranks, 100'000);
}

INSTANTIATE_TEST_SUITE_P(, Family, testing::ValuesIn(all_algorithms()),
                         [](const auto& param) { return std::string(param.param->name); });

}  // namespace
}  // namespace tutti
