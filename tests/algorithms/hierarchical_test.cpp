// SPDX-License-Identifier: Apache-2.0
// Hierarchical's formulas: the sums of its parts, rank by rank, in both forms.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <bit>
#include <string>

#include "base/config.hpp"
#include "counts.hpp"
#include "samples.hpp"

namespace tutti {
namespace {

constexpr const char* kOuters[] = {"ring",      "tree",     "butterfly", "rabenseifner",
                                   "circulant", "one_shot", "two_shot",  "pat"};

struct Equal {
  std::int32_t groups, size;  // g groups of s ranks
};
constexpr Equal kEqual[] = {{2, 2}, {2, 3}, {3, 2}, {3, 3}, {4, 2}, {5, 4}, {4, 5}, {7, 3}, {8, 4}};

Schedule part(const char* name, Collective collective, std::int32_t ranks) {
  return build_schedule(**find_algorithm(name), {.collective = collective, .ranks = ranks}).value();
}

counts::RankCounts counted(const Schedule& schedule, std::int32_t rank) {
  return counts::of(schedule.ranks[static_cast<std::size_t>(rank)]);
}

// The three parts of a hierarchy of equal groups, and the whole.
struct Parts {
  Parts(const std::string& form, const char* inner, const char* outer_name, const Equal& equal)
      : gather(part(inner, form == "rails" ? Collective::kReduceScatter : Collective::kReduce,
                    equal.size)),
        outer(part(outer_name, Collective::kAllReduce, equal.groups)),
        spread(part(inner, form == "rails" ? Collective::kAllGather : Collective::kBroadcast,
                    equal.size)),
        whole(samples::built(fmt::format("hierarchical:form={}:inner={}:outer={}:groups={}x{}",
                                         form, inner, outer_name, equal.groups, equal.size),
                             equal.groups * equal.size)) {}

  // A chunk of an inner part lies on all rows, a chunk of the outer part on `width` columns.
  void expect_sums(const Equal& equal, bool leaders_only, std::uint32_t width) const {
    const std::uint64_t rows = outer.shape.chunks;
    ASSERT_EQ(whole.shape.chunks, rows * gather.shape.chunks);
    for (Rank rank = 0; rank < whole.shape.ranks; ++rank) {
      const std::int32_t index = rank % equal.size, group = rank / equal.size;
      const counts::RankCounts down = counted(gather, index), up = counted(spread, index);
      const bool between = !leaders_only || index == 0;
      const counts::RankCounts rail = between ? counted(outer, group) : counts::RankCounts{};
      const counts::RankCounts found = counted(whole, rank);
      EXPECT_EQ(found.messages, down.messages + up.messages + rail.messages);
      EXPECT_EQ(found.sent_chunks,
                (down.sent_chunks + up.sent_chunks) * rows + rail.sent_chunks * width);
      EXPECT_EQ(found.reduced_chunks, down.reduced_chunks * rows + rail.reduced_chunks * width);
      EXPECT_EQ(found.finished_chunks, rail.finished_chunks * width);
    }
    EXPECT_EQ(counts::proof_of(whole).depth, counts::proof_of(gather).depth +
                                                 counts::proof_of(outer).depth +
                                                 counts::proof_of(spread).depth);
  }

  // What a group sends to others is the outer rank's part of all bytes, whatever the form.
  void expect_bytes_between(const Equal& equal) const {
    for (std::int32_t group = 0; group < equal.groups; ++group) {
      std::uint64_t sent = 0;
      for (Rank rank = group * equal.size; rank < (group + 1) * equal.size; ++rank)
        for (const auto& message : counts::sent_by(whole.ranks[static_cast<std::size_t>(rank)]))
          if (message.to / equal.size != group) sent += message.span.count();
      EXPECT_EQ(sent * outer.shape.chunks,
                std::uint64_t{counted(outer, group).sent_chunks} * whole.shape.chunks);
    }
  }

  Schedule gather, outer, spread, whole;
};

TEST(Hierarchical, RailsAreTheSumOfTheirParts) {
  for (const char* inner : {"ring", "rabenseifner", "circulant", "two_shot"})
    for (const char* outer : kOuters)
      for (const Equal& equal : kEqual) {
        const Parts parts("rails", inner, outer, equal);
        SCOPED_TRACE(parts.whole.shape.algorithm);
        parts.expect_sums(equal, false, 1);
        parts.expect_bytes_between(equal);
        // 2(s-1)/s n inside: of rows * s chunks. Those that halve, and are no power of two, do so
        // on average.
        const auto least = 2U * static_cast<std::uint64_t>(equal.size - 1);
        const bool uneven = inner == std::string("rabenseifner") &&
                            !std::has_single_bit(static_cast<std::uint32_t>(equal.size));
        std::uint64_t sum = 0;
        for (Rank rank = 0; rank < equal.size; ++rank) {
          const std::uint64_t sent =
              counted(parts.gather, rank).sent_chunks + counted(parts.spread, rank).sent_chunks;
          if (!uneven) {
            EXPECT_EQ(sent, least);
          }
          sum += sent;
        }
        EXPECT_EQ(sum, least * static_cast<std::uint64_t>(equal.size));
      }
}

TEST(Hierarchical, LeadersAreTheSumOfTheirParts) {
  for (const char* inner : {"ring", "tree", "butterfly", "one_shot"})
    for (const char* outer : kOuters)
      for (const Equal& equal : kEqual) {
        const Parts parts("leader", inner, outer, equal);
        SCOPED_TRACE(parts.whole.shape.algorithm);
        parts.expect_sums(equal, true, parts.gather.shape.chunks);
        parts.expect_bytes_between(equal);
      }
}

// The table in hierarchical.cpp: of groups 3+2, who serves which rail.
TEST(Hierarchical, RailsAreServedAsThePageSays) {
  const Schedule schedule = samples::built("hierarchical:groups=3+2", 5);
  const std::vector<int> served[5] = {{0}, {1}, {2}, {0}, {1, 2}};
  for (std::size_t rank = 0; rank < 5; ++rank) {
    std::vector<int> found;
    for (const Lane& lane : schedule.ranks[rank].lanes)
      for (int rail = 0; rail < 3; ++rail)
        if (lane.name.starts_with(fmt::format("rail{} ", rail))) found.push_back(rail);
    EXPECT_EQ(found, served[rank]) << "rank " << rank;
  }
}

TEST(Hierarchical, DefaultGroupsAreAboutTheSquareRoot) {
  const auto expect_same = [](std::int32_t ranks, const char* groups) {
    EXPECT_EQ(samples::built("hierarchical", ranks).ranks,
              samples::built(fmt::format("hierarchical:groups={}", groups), ranks).ranks)
        << ranks << " ranks";
  };
  for (const std::int32_t ranks : {2, 3, 5}) expect_same(ranks, fmt::format("{}", ranks).c_str());
  expect_same(4, "2x2");
  expect_same(6, "2x3");
  expect_same(7, "3+3+1");
  expect_same(10, "2x5");
  expect_same(12, "3x4");
  expect_same(16, "4x4");
  expect_same(17, "5+5+5+2");
  expect_same(64, "8x8");
}

TEST(Hierarchical, OneGroupIsItsInnerPartsAndOneRankEachIsTheOuterOne) {
  const Schedule single = samples::built("hierarchical:groups=1x6", 6);
  const Schedule alone = samples::built("hierarchical:outer=ring:groups=6x1", 6);
  EXPECT_EQ(counts::proof_of(single).depth, 2U);  // two_shot
  EXPECT_EQ(counts::proof_of(alone).depth, 10U);
  for (std::size_t rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(counts::sent_by(single.ranks[rank]),
              counts::sent_by(samples::built("two_shot", 6).ranks[rank]));
    EXPECT_EQ(counts::sent_by(alone.ranks[rank]),
              counts::sent_by(samples::built("ring", 6).ranks[rank]));
  }
}

// Parameters of the parts: their keys behind the part's, wherever they stand.
TEST(Hierarchical, PartsTakeTheirOwnParameters) {
  const std::string name =
      "hierarchical:outer.radix=4:inner=circulant:inner.radix=3:outer=circulant:groups=5x7";
  ASSERT_LT(name.size(), kMaxAlgorithmName);
  const Schedule whole = samples::built(name, 35);
  const auto half = [](Collective collective) {
    return counts::proof_of(part("circulant:radix=3", collective, 7)).depth;
  };
  EXPECT_EQ(counts::proof_of(whole).depth,
            half(Collective::kReduceScatter) + half(Collective::kAllGather) +
                counts::proof_of(samples::built("circulant:radix=4", 5)).depth);
  EXPECT_NE(whole.ranks, samples::built("hierarchical:inner=circulant:groups=5x7", 35).ranks);
  // Without a family the form's own.
  EXPECT_EQ(samples::built("hierarchical:outer.radix=3:groups=4x2", 8).ranks,
            samples::built("hierarchical:outer=circulant:outer.radix=3:groups=4x2", 8).ranks);
}

Schedule whole_of(const std::string& name, const Problem& problem) {
  const Result<Schedule> built = build_schedule(**find_algorithm(name), problem);
  EXPECT_TRUE(built) << name << ": " << built.error().message;
  return built.value_or(Schedule{});
}

// Each block comes to a group once; the messages in a row are those of both parts.
TEST(Hierarchical, AllGatherIsTheSumOfItsParts) {
  for (const char* inner : {"ring", "rabenseifner", "circulant", "two_shot"})
    for (const char* outer : {"ring", "rabenseifner", "circulant", "two_shot", "pat"})
      for (const Equal& equal : kEqual) {
        const Schedule whole =
            whole_of(fmt::format("hierarchical:inner={}:outer={}:groups={}x{}", inner, outer,
                                 equal.groups, equal.size),
                     {.collective = Collective::kAllGather, .ranks = equal.groups * equal.size});
        SCOPED_TRACE(whole.shape.algorithm);
        const Schedule near = part(inner, Collective::kAllGather, equal.size);
        const Schedule far = part(outer, Collective::kAllGather, equal.groups);
        const Proof proof = counts::proof_of(whole);
        EXPECT_EQ(proof.minimal_slots, 2U);
        EXPECT_EQ(proof.depth, counts::proof_of(near).depth + counts::proof_of(far).depth);
        EXPECT_EQ(whole.shape.chunks, static_cast<std::uint32_t>(whole.shape.ranks));
        std::uint64_t between = 0, sent = 0;
        for (Rank rank = 0; rank < whole.shape.ranks; ++rank)
          for (const auto& message : counts::sent_by(whole.ranks[static_cast<std::size_t>(rank)])) {
            sent += message.span.count();
            if (message.to / equal.size != rank / equal.size) between += message.span.count();
          }
        const auto p = static_cast<std::uint64_t>(whole.shape.ranks);
        EXPECT_EQ(sent, p * (p - 1));
        EXPECT_EQ(between, p * static_cast<std::uint64_t>(equal.groups - 1));
      }
}

TEST(Hierarchical, BroadcastIsTheSumOfItsParts) {
  for (const char* inner : {"ring", "tree", "butterfly", "one_shot"})
    for (const char* outer : {"ring", "tree", "butterfly", "one_shot"})
      for (const char* groups : {"2x2", "3x4", "4+4+1", "1+5+2", "6x1", "1x6"}) {
        const std::string name = fmt::format("hierarchical:form=leader:inner={}:outer={}:groups={}",
                                             inner, outer, groups);
        std::int32_t ranks = 1;
        while (!(*find_algorithm(name))->supports({Collective::kBroadcast, ranks})) ++ranks;
        for (Rank root = 0; root < ranks; ++root) {
          const Schedule whole = whole_of(name, {Collective::kBroadcast, ranks, root});
          SCOPED_TRACE(testing::Message() << name << ", root " << root);
          EXPECT_EQ(counts::proof_of(whole).minimal_slots, 2U);
          std::uint64_t sent = 0;
          for (const RankProgram& program : whole.ranks) sent += counts::of(program).sent_chunks;
          EXPECT_EQ(sent, std::uint64_t{whole.shape.chunks} * static_cast<unsigned>(ranks - 1));
        }
      }
}

// Between groups of different sizes the blocks of a rail are no regular span.
TEST(Hierarchical, AllGatherTakesGroupsOfOneSizeOnly) {
  const Algorithm& unequal = **find_algorithm("hierarchical:groups=4+2");
  EXPECT_TRUE(unequal.supports({Collective::kAllReduce, 6}));
  EXPECT_FALSE(unequal.supports({Collective::kAllGather, 6}));
  for (std::int32_t ranks = 1; ranks <= 70; ++ranks)
    EXPECT_TRUE((*find_algorithm("hierarchical"))->supports({Collective::kAllGather, ranks}));
}

TEST(Hierarchical, GroupsThatAreNotOfTheseRanksAreRefused) {
  const auto built = build_schedule(**find_algorithm("hierarchical:groups=4+4"),
                                    {.collective = Collective::kAllReduce, .ranks = 9});
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().code, Code::kNotSupported);
}

}  // namespace
}  // namespace tutti
