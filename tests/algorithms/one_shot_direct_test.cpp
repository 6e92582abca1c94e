// SPDX-License-Identifier: Apache-2.0
// The forms of rooted collectives that work in peers' memory: their formulas, and why an all-to-all
// has none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "algorithms/direct.hpp"
#include "counts.hpp"
#include "direct_forms.hpp"
#include "schedule/verifier.hpp"

namespace tutti {
namespace {

using test::without_signal;
using ::testing::StartsWith;

struct Form {
  const char* name;
  Collective collective;
  std::uint64_t parts;  // that each other rank moves, and tells of
};

void expect_counts(const Form& form, Rank p, Rank root) {
  const Schedule schedule =
      *build_schedule(**find_algorithm(form.name), {form.collective, p, root});
  const auto others = static_cast<std::uint64_t>(p - 1);
  for (Rank rank = 0; rank < p; ++rank) {
    const RankProgram& program = schedule.ranks[static_cast<std::size_t>(rank)];
    const counts::RankCounts counts = counts::of(program);
    EXPECT_EQ(counts.sent_chunks, 0U);
    EXPECT_EQ(counts.reduced_chunks, 0U);
    EXPECT_EQ(counts.messages, rank == root ? others : form.parts);
    EXPECT_EQ(counts::chunks_of(program, OperandKind::kRemote), rank == root ? 0U : form.parts);
  }
  EXPECT_EQ(verify(schedule)->depth, 2U);
  const counts::Connections connections(schedule);
  EXPECT_EQ(schedule.shape.max_incoming, connections.max_incoming());
  EXPECT_EQ(schedule.shape.max_per_pair, connections.max_per_pair());
}

TEST(OneShotDirect, CountsAreThoseOfTheFormula) {
  using enum Collective;
  for (const Form& form :
       {Form{"one_shot:access=remote", kBroadcast, 8}, Form{"one_shot:access=remote", kScatter, 1},
        Form{"one_shot:access=store", kGather, 1}})
    for (const Rank p : {2, 3, 8, 33})
      for (const Rank root : {0, p - 1}) {
        SCOPED_TRACE(::testing::Message() << name_of(form.collective) << " " << p << " " << root);
        expect_counts(form, p, root);
      }
}

TEST(OneShotDirect, NoSignalCanBeLeftOut) {
  using enum Collective;
  int signals = 0;
  for (const auto& [name, collective] : {std::pair{"one_shot:access=remote", kBroadcast},
                                         {"one_shot:access=remote", kScatter},
                                         {"one_shot:access=store", kGather},
                                         {"two_shot:access=store", kReduce}})
    for (const Rank p : {2, 3}) {
      const Schedule whole = *build_schedule(**find_algorithm(name), {collective, p, 0});
      ASSERT_TRUE(verify(whole));
      for (const auto& [from, to] : {std::pair<Rank, Rank>{0, 1}, {1, 0}})
        for (int which = 0;; ++which) {
          const auto schedule = without_signal(whole, from, to, which);
          if (!schedule) break;
          ++signals;
          EXPECT_FALSE(verify(*schedule))
              << name_of(collective) << " among " << p << ", signal " << which << " of " << from;
        }
    }
  EXPECT_EQ(signals, 2 * (9 + 2 + 2 + 4));
}

// A reduce by two_shot:access=store: the all-reduce's signals, and one store for each chunk.
TEST(TwoShotStore, OfAReduceGoesToTheRootAlone) {
  for (const Rank p : {2, 3, 8}) {
    const Rank root = p - 1;
    const Schedule schedule =
        *build_schedule(**find_algorithm("two_shot:access=store"), {Collective::kReduce, p, root});
    for (Rank rank = 0; rank < p; ++rank)
      for (const Step& step : schedule.ranks[static_cast<std::size_t>(rank)].lanes[0].steps) {
        if (!step.finish) continue;
        ASSERT_EQ(step.destinations.size(), 1U);
        EXPECT_EQ(step.destinations[0].kind,
                  rank == root ? OperandKind::kLocal : OperandKind::kRemote);
        EXPECT_EQ(step.destinations[0].peer, rank == root ? kNoRank : root);
        EXPECT_EQ(step.sources.size(), static_cast<std::size_t>(p));
      }
    EXPECT_EQ(verify(schedule)->depth, 2U);
  }
}

// Each rank reads the blocks that are for it where they lie. Which in place is where it writes the
// blocks that are for it.
TEST(DirectAllToAll, IsNoneInPlace) {
  using namespace operands;
  constexpr Rank kRanks = 2;
  Schedule schedule;
  schedule.shape = {.algorithm = "direct",
                    .collective = Collective::kAllToAll,
                    .ranks = kRanks,
                    .chunks = kRanks,
                    .max_incoming = 1,
                    .max_per_pair = 1};
  for (Rank rank = 0; rank < kRanks; ++rank) {
    LaneBuilder lane("direct");
    tell_all(kRanks, rank, lane);
    hear_all(kRanks, rank, lane);
    const Rank peer = 1 - rank;
    const Span mine = chunk(static_cast<std::uint32_t>(rank));
    const Span theirs = chunk(static_cast<std::uint32_t>(peer));
    lane.step().to(output(mine)).from(input(mine));
    lane.step().to(output(theirs)).from(remote(peer, BufferKind::kInput, mine));
    tell_all(kRanks, rank, lane);
    hear_all(kRanks, rank, lane);
    schedule.ranks.push_back(assemble(std::move(lane)));
  }
  const auto proof = verify(schedule);
  ASSERT_FALSE(proof);
  EXPECT_THAT(proof.error().message, StartsWith("race: "));
  EXPECT_THAT(proof.error().message, ::testing::HasSubstr("(in place: input)"));
}

}  // namespace
}  // namespace tutti
