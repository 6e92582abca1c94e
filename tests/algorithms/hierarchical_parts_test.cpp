// SPDX-License-Identifier: Apache-2.0
// Hierarchical reduce, reduce-scatter, gather, scatter and all-to-all: their formulas, as sums of
// those of their parts, and which parts they take.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "counts.hpp"
#include "schedule/builder.hpp"

namespace tutti {
namespace {

using enum Collective;

struct Equal {
  std::int32_t groups, size;  // g groups of s ranks
  [[nodiscard]] std::int32_t ranks() const { return groups * size; }
};
constexpr Equal kEqual[] = {{2, 2}, {2, 3}, {3, 2}, {3, 3}, {4, 2},
                            {5, 4}, {4, 5}, {7, 3}, {1, 6}, {6, 1}};

Schedule built(const std::string& name, const Problem& problem) {
  const Result<Schedule> schedule = build_schedule(**find_algorithm(name), problem);
  EXPECT_TRUE(schedule) << name << ": " << schedule.error().message;
  return schedule.value_or(Schedule{});
}

Schedule built(const std::string& form, const char* inner, const char* outer, const Equal& equal,
               Collective collective, Rank root = 0) {
  return built(fmt::format("hierarchical:form={}:inner={}:outer={}:groups={}x{}", form, inner,
                           outer, equal.groups, equal.size),
               {collective, equal.ranks(), root});
}

counts::RankCounts counted(const Schedule& schedule, std::int32_t rank) {
  return counts::of(schedule.ranks[static_cast<std::size_t>(rank)]);
}

std::uint64_t sent_by_all(const Schedule& schedule) {
  std::uint64_t sent = 0;
  for (const RankProgram& program : schedule.ranks) sent += counts::of(program).sent_chunks;
  return sent;
}

// Chunks in messages from one group to another, and the number of these messages.
struct Between {
  std::uint64_t chunks = 0, messages = 0;
};
Between between_groups(const Schedule& schedule, std::int32_t size) {
  Between between;
  for (Rank rank = 0; rank < schedule.shape.ranks; ++rank)
    for (const auto& message : counts::sent_by(schedule.ranks[static_cast<std::size_t>(rank)]))
      if (message.to / size != rank / size) {
        between.chunks += message.span.count();
        ++between.messages;
      }
  return between;
}

// Messages in a row and slots are those of the parts, one behind the other.
void expect_parts_in_a_row(const Schedule& whole, const Schedule& near, const Schedule& far) {
  const Proof proof = counts::proof_of(whole);
  EXPECT_EQ(proof.minimal_slots, 2U);
  EXPECT_EQ(proof.depth, counts::proof_of(near).depth + counts::proof_of(far).depth);
}

TEST(HierarchicalReduce, IsTheSumOfItsParts) {
  for (const char* inner : {"ring", "tree", "butterfly", "one_shot", "rabenseifner"})
    for (const char* outer : {"ring", "tree", "butterfly", "one_shot", "rabenseifner"})
      for (const Equal& equal : kEqual)
        for (Rank root = 0; root < equal.ranks(); ++root) {
          const Schedule whole = built("leader", inner, outer, equal, kReduce, root);
          SCOPED_TRACE(testing::Message() << whole.shape.algorithm << ", root " << root);
          const Schedule near = built(inner, {kReduce, equal.size});
          const Schedule far = built(outer, {kReduce, equal.groups});
          expect_parts_in_a_row(whole, near, far);
          const std::uint64_t rows = equal.groups > 1 ? far.shape.chunks : 1;
          const std::uint64_t columns = near.shape.chunks;
          ASSERT_EQ(whole.shape.chunks, rows * columns);
          EXPECT_EQ(between_groups(whole, equal.size).chunks, sent_by_all(far) * columns);
          EXPECT_EQ(sent_by_all(whole),
                    sent_by_all(near) * rows * static_cast<std::uint64_t>(equal.groups) +
                        sent_by_all(far) * columns);
          std::uint64_t finished = 0;  // no chunk twice
          for (const RankProgram& program : whole.ranks)
            finished += counts::of(program).finished_chunks;
          EXPECT_EQ(finished, whole.shape.chunks);
        }
}

// Of groups that differ in size as well; a rank of a small one may be the root.
TEST(HierarchicalReduce, EveryRankSendsTheDataOnceInGroupsOfAnySize) {
  for (const char* inner : {"ring", "tree", "butterfly", "one_shot"})
    for (const char* outer : {"ring", "tree", "butterfly", "one_shot"})
      for (const auto& [groups, ranks] :
           {std::pair{"4+4+1", 9}, {"1+5+2", 8}, {"3+2", 5}, {"1+1+3", 5}})
        for (Rank root = 0; root < ranks; ++root) {
          const Schedule whole =
              built(fmt::format("hierarchical:form=leader:inner={}:outer={}:groups={}", inner,
                                outer, groups),
                    {kReduce, ranks, root});
          SCOPED_TRACE(testing::Message() << whole.shape.algorithm << ", root " << root);
          EXPECT_EQ(counts::proof_of(whole).minimal_slots, 2U);
          EXPECT_EQ(sent_by_all(whole),
                    std::uint64_t{whole.shape.chunks} * static_cast<unsigned>(ranks - 1));
        }
}

TEST(HierarchicalReduceScatter, IsTheSumOfItsPartsAtTheLeastBytes) {
  for (const char* inner : {"ring", "rabenseifner", "two_shot"})
    for (const char* outer : {"ring", "rabenseifner", "two_shot"})
      for (const Equal& equal : kEqual) {
        const Schedule whole = built("rails", inner, outer, equal, kReduceScatter);
        SCOPED_TRACE(whole.shape.algorithm);
        const Schedule near = built(inner, {kReduceScatter, equal.size});
        const Schedule far = built(outer, {kReduceScatter, equal.groups});
        expect_parts_in_a_row(whole, near, far);
        ASSERT_EQ(whole.shape.chunks, static_cast<std::uint32_t>(equal.ranks()));
        for (Rank rank = 0; rank < equal.ranks(); ++rank) {
          const counts::RankCounts found = counted(whole, rank);
          EXPECT_EQ(found.sent_chunks, static_cast<std::uint64_t>(equal.ranks() - 1));
          EXPECT_EQ(found.finished_chunks, 1U);
          EXPECT_EQ(found.messages, counted(near, rank % equal.size).messages +
                                        counted(far, rank / equal.size).messages);
        }
        EXPECT_EQ(between_groups(whole, equal.size).chunks,
                  static_cast<std::uint64_t>(equal.ranks() * (equal.groups - 1)));
      }
}

// A column of the grid is enough for the sums of a rank whose inner part keeps none on its way.
TEST(HierarchicalReduceScatter, ScratchIsThatOfThePage) {
  const auto slots = [](const char* inner, const Equal& equal) {
    const ScheduleShape shape = built("rails", inner, "rabenseifner", equal, kReduceScatter).shape;
    EXPECT_EQ(shape.scratch_versions, equal.groups > 1 ? 2U : 1U);
    return shape.scratch_chunks;
  };
  EXPECT_EQ(slots("two_shot", {5, 4}), 5U);
  EXPECT_EQ(slots("ring", {5, 4}), 5U);
  EXPECT_EQ(slots("rabenseifner", {5, 4}), 20U);
  EXPECT_EQ(slots("two_shot", {1, 6}), 0U);
}

// The root hears from the other ranks of its group and from the other groups, not from all.
TEST(HierarchicalGather, AndScatterAreTheSumsOfTheirParts) {
  for (const Collective collective : {kGather, kScatter})
    for (const char* outer : {"one_shot", "butterfly"})
      for (const Equal& equal : kEqual)
        for (Rank root = 0; root < equal.ranks(); ++root) {
          const Schedule whole = built("leader", "one_shot", outer, equal, collective, root);
          SCOPED_TRACE(testing::Message() << whole.shape.algorithm << ", root " << root);
          const Schedule near = built("one_shot", {collective, equal.size});
          const Schedule far = built(outer, {collective, equal.groups});
          expect_parts_in_a_row(whole, near, far);
          ASSERT_EQ(whole.shape.chunks, static_cast<std::uint32_t>(equal.ranks()));
          const auto size = static_cast<std::uint64_t>(equal.size);
          const Between between = between_groups(whole, equal.size);
          EXPECT_EQ(between.chunks, sent_by_all(far) * size);
          EXPECT_EQ(between.messages, static_cast<std::uint64_t>(equal.groups - 1));
          EXPECT_EQ(sent_by_all(whole),
                    static_cast<std::uint64_t>(equal.ranks() - equal.groups) + between.chunks);
          std::uint64_t messages = 0, blocks = 0;  // of those that the root takes or sends
          for (const Lane& lane : whole.ranks[static_cast<std::size_t>(root)].lanes)
            for (const Step& step : lane.steps)
              for (const Operand& operand :
                   collective == kGather ? step.sources : step.destinations)
                if (operand.kind != OperandKind::kLocal) {
                  ++messages;
                  blocks += operand.span.count();
                }
          EXPECT_EQ(blocks, static_cast<std::uint64_t>(equal.ranks() - 1));
          const std::uint64_t of_outer = outer == std::string("one_shot")
                                             ? static_cast<std::uint64_t>(equal.groups - 1)
                                             : counts::ceil_log(equal.groups, 2);
          EXPECT_EQ(messages, size - 1 + of_outer);
        }
}

TEST(HierarchicalAllToAll, IsTheSumOfItsParts) {
  for (const char* outer : {"two_shot", "butterfly", "circulant"})
    for (const Equal& equal : kEqual) {
      const Schedule whole = built("rails", "two_shot", outer, equal, kAllToAll);
      SCOPED_TRACE(whole.shape.algorithm);
      const Schedule near = built("two_shot", {kAllToAll, equal.size});
      const Schedule far = built(outer, {kAllToAll, equal.groups});
      expect_parts_in_a_row(whole, near, far);
      ASSERT_EQ(whole.shape.chunks, static_cast<std::uint32_t>(equal.ranks()));
      const auto rows = static_cast<std::uint64_t>(equal.groups);
      const auto columns = static_cast<std::uint64_t>(equal.size);
      for (Rank rank = 0; rank < equal.ranks(); ++rank) {
        const counts::RankCounts found = counted(whole, rank);
        const counts::RankCounts outside = counted(far, rank / equal.size);
        EXPECT_EQ(found.messages, columns - 1 + outside.messages);
        EXPECT_EQ(found.sent_chunks, (columns - 1) * rows + outside.sent_chunks * columns);
      }
    }
}

// The table in hierarchical.cpp of groups 2x2.
TEST(HierarchicalAllToAll, SendsWhatThePageSays) {
  const Schedule schedule = built("rails", "two_shot", "two_shot", {2, 2}, kAllToAll);
  using Sent = std::vector<counts::SentMessage>;
  const auto column = [](std::uint32_t k) {
    return Span{.first = k, .run = 1, .stride = 2, .repetitions = 2};
  };
  const Sent expected[4] = {{{1, column(1)}, {2, operands::chunks(2, 2)}},
                            {{0, column(0)}, {3, operands::chunks(2, 2)}},
                            {{3, column(1)}, {0, operands::chunks(0, 2)}},
                            {{2, column(0)}, {1, operands::chunks(0, 2)}}};
  for (std::size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(counts::sent_by(schedule.ranks[rank]), expected[rank]) << "rank " << rank;
}

// What a rank keeps in scratch is a regular span only where no part goes around the end of it.
TEST(HierarchicalParts, TakeWhatThePageSays) {
  const auto supports = [](std::string_view parameters, Collective collective, std::int32_t p) {
    return (*find_algorithm(fmt::format("hierarchical:{}", parameters)))
        ->supports({.collective = collective, .ranks = p});
  };
  EXPECT_FALSE(supports("inner=circulant:groups=2x4", kReduceScatter, 8));
  EXPECT_TRUE(supports("inner=circulant:outer=circulant:groups=3x3", kReduceScatter, 9));
  EXPECT_TRUE(supports("inner=circulant:inner.radix=4:groups=3x4", kReduceScatter, 12));
  EXPECT_FALSE(supports("outer=circulant:groups=4x2", kReduceScatter, 8));
  EXPECT_FALSE(supports("outer=pat:groups=4x2", kReduceScatter, 8));
  EXPECT_FALSE(supports("outer=tree:groups=4x2", kReduceScatter, 8));
  EXPECT_FALSE(supports("form=leader:inner=butterfly:groups=2x4", kGather, 8));
  EXPECT_TRUE(supports("form=leader:inner=butterfly:groups=2x3", kGather, 6));
  EXPECT_FALSE(supports("form=leader:inner=tree:groups=2x3", kScatter, 6));
  EXPECT_FALSE(supports("inner=circulant:groups=2x3", kAllToAll, 6));
  EXPECT_TRUE(supports("outer=circulant:groups=4x2", kAllToAll, 8));
  EXPECT_TRUE(supports("form=leader:groups=4+2", kReduce, 6));
  for (const Collective collective : {kReduceScatter, kGather, kScatter, kAllToAll})
    EXPECT_FALSE(supports("groups=4+2", collective, 6)) << name_of(collective);
  EXPECT_FALSE(supports("form=rails", kReduce, 6));
  EXPECT_FALSE(supports("form=leader", kReduceScatter, 6));
  for (std::int32_t ranks = 1; ranks <= 70; ++ranks)
    for (const Collective collective :
         {kReduce, kReduceScatter, kGather, kScatter, kAllToAll, kAllGather, kBroadcast})
      EXPECT_TRUE((*find_algorithm("hierarchical"))->supports({collective, ranks}));
}

// Slices share the versions of scratch: without the waits for the slice before, one part would
// write where another still reads.
TEST(HierarchicalParts, WithoutTheWaitsForAnEarlierSliceTheVerifierFalls) {
  for (const auto& [collective, root] :
       {std::pair{kReduce, 4}, {kReduceScatter, 0}, {kGather, 4}, {kScatter, 4}}) {
    const Schedule whole = built("hierarchical:groups=2x3", {collective, 6, root});
    std::size_t removed = 0;
    for (std::size_t r = 0; r < whole.ranks.size(); ++r)
      for (std::size_t l = 0; l < whole.ranks[r].lanes.size(); ++l) {
        Schedule broken = whole;
        bool found = false;
        for (Step& step : broken.ranks[r].lanes[l].steps)
          found = std::erase_if(step.waits, [](const Wait& wait) { return wait.back > 0; }) > 0 ||
                  found;
        if (!found) continue;
        ++removed;
        EXPECT_FALSE(verify(broken)) << name_of(collective) << " rank " << r << " lane " << l;
      }
    EXPECT_GE(removed, 1U) << name_of(collective);
  }
}

}  // namespace
}  // namespace tutti
