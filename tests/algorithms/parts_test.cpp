// SPDX-License-Identifier: Apache-2.0
// The collectives that are no all-reduce, of the families that have them, with every root: exact
// shapes and the bytes that they need. Their proofs stand in proved_test.cpp; here those of
// variants, which are on no list.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <bit>

#include "counts.hpp"
#include "samples.hpp"
#include "schedule/passes.hpp"

namespace tutti {
namespace {

struct Part {
  std::string_view algorithm;
  Collective collective;
};

std::vector<Part> all_parts() {
  std::vector<Part> parts;
  for (const std::string_view name :
       {"ring", "ring:exchange=neighbours", "tree", "butterfly", "rabenseifner", "one_shot",
        "two_shot", "circulant", "circulant:radix=3", "circulant:radix=5", "pat", "hierarchical"})
    for (std::size_t c = 1; c < kCollectiveCount; ++c) {
      const auto collective = static_cast<Collective>(c);
      if (collective != Collective::kAllReduce &&
          (*find_algorithm(name))->supports({.collective = collective, .ranks = 4}))
        parts.push_back({name, collective});
    }
  return parts;
}

class PartTest : public testing::TestWithParam<Part> {
 protected:
  // All roots where there is one.
  template <typename Check>
  void at_every_rank_count_and_root(Check check) {
    const auto& [name, collective] = GetParam();
    const bool rooted = info_of(collective).rooted;
    for (std::int32_t ranks = 1; ranks <= 33; ++ranks)
      for (Rank root = 0; root < (rooted ? ranks : 1); ++root) {
        SCOPED_TRACE(testing::Message() << name << ", " << ranks << " ranks, root " << root);
        if (name == "ring:exchange=neighbours" && ranks % 2 == 1 && ranks > 1) continue;
        const auto built = build_schedule(**find_algorithm(name),
                                          {.collective = collective, .ranks = ranks, .root = root});
        ASSERT_TRUE(built) << built.error().message;
        check(*built);
        if (HasFatalFailure()) return;
      }
  }
};

TEST_P(PartTest, VariantsAreProvedAlsoReplicated) {
  if (GetParam().algorithm.find(':') == std::string_view::npos) return;
  at_every_rank_count_and_root([](const Schedule& schedule) {
    for (const std::uint32_t replicas : {1U, 2U}) {
      const Result<Proof> proof = verify(replicate(schedule, replicas));
      ASSERT_TRUE(proof) << proof.error().message;
      EXPECT_EQ(proof->minimal_slots, 2U);
    }
  });
}

TEST_P(PartTest, ShapeDeclaresExactlyWhatTheProgramsUse) {
  at_every_rank_count_and_root([](const Schedule& schedule) {
    const counts::Connections connections(schedule);
    EXPECT_EQ(connections.sends, connections.receives);
    EXPECT_EQ(schedule.shape.max_incoming, connections.max_incoming());
    EXPECT_EQ(schedule.shape.max_per_pair, connections.max_per_pair());
    EXPECT_EQ(schedule.shape.max_message_chunks, std::max(1U, connections.max_message_chunks));
  });
}

// The digits of `number` to this base that are not 0: the hops of a block that goes so many places
// on by skips of powers of the base.
std::uint64_t hops(std::uint64_t number, std::uint64_t base) {
  std::uint64_t hops = 0;
  for (; number > 0; number /= base) hops += number % base != 0;
  return hops;
}

// What the first ranks of all parts of `ranks` collect, each range being cut in halves.
std::uint64_t collected(std::uint64_t ranks) {
  if (ranks < 2) return 0;
  return ranks / 2 + collected((ranks + 1) / 2) + collected(ranks / 2);
}

// The groups of a hierarchy by its defaults: the most, of at least sqrt(p) ranks each.
std::uint32_t equal_groups(std::uint32_t ranks) {
  std::uint32_t groups = 1;
  for (std::uint32_t g = 1; g * g <= ranks; ++g)
    if (ranks % g == 0) groups = g;
  return groups;
}

// What all ranks together send, in chunks.
std::uint64_t needed(const Part& part, const ScheduleShape& shape) {
  using enum Collective;
  const auto p = static_cast<std::uint64_t>(shape.ranks);
  const auto all_hops = [&](std::uint64_t base) {
    std::uint64_t sum = 0;
    for (std::uint64_t i = 1; i < p; ++i) sum += hops(i, base);
    return sum;
  };
  const bool rooted_blocks = part.collective == kGather || part.collective == kScatter;
  if (part.algorithm == "hierarchical" && (rooted_blocks || part.collective == kAllToAll)) {
    // Each block once inside a group and once between groups, but those that need no move there.
    const std::uint64_t g = equal_groups(static_cast<std::uint32_t>(p)), twice = 2 * p - g - p / g;
    return rooted_blocks ? twice : p * twice;
  }
  if (rooted_blocks) return part.algorithm == "one_shot" ? p - 1 : all_hops(2);
  if (part.collective == kAllToAll && part.algorithm.starts_with("circulant")) {
    const bool by_default = part.algorithm == "circulant";
    return p * all_hops(by_default ? 2 : static_cast<std::uint64_t>(part.algorithm.back() - '0'));
  }
  if (part.algorithm == "rabenseifner" && part.collective == kReduce)
    return (p - 1) * p + collected(p);
  // Half an all-reduce: each rank sends (p-1)/p of the bytes, or the tree's and star's edges.
  return (p - 1) * shape.chunks;
}

TEST_P(PartTest, AllRanksTogetherSendWhatTheCollectiveNeeds) {
  at_every_rank_count_and_root([](const Schedule& schedule) {
    std::uint64_t sent = 0;
    for (const RankProgram& program : schedule.ranks) sent += counts::of(program).sent_chunks;
    EXPECT_EQ(sent, needed(GetParam(), schedule.shape));
  });
}

// The second table of algorithms/README.md.
TEST(Parts, MessagesInARowAreThoseOfTheIndex) {
  using enum Collective;
  const auto depth = [](std::string_view name, Collective collective, std::int32_t p) {
    return counts::proof_of(
               *build_schedule(**find_algorithm(name), {.collective = collective, .ranks = p}))
        .depth;
  };
  for (std::int32_t p = 2; p <= 70; ++p) {
    SCOPED_TRACE(p);
    const auto ranks = static_cast<std::uint32_t>(p);
    const auto levels = static_cast<std::uint32_t>(std::bit_width(ranks)) - 1;
    for (const Collective collective : {kGather, kScatter}) {
      EXPECT_EQ(depth("one_shot", collective, p), 1U);
      EXPECT_EQ(depth("butterfly", collective, p), levels);
    }
    EXPECT_EQ(depth("two_shot", kAllToAll, p), 1U);
    if (std::has_single_bit(ranks)) {
      EXPECT_EQ(depth("butterfly", kAllToAll, p), ranks - 1);
    }
    EXPECT_EQ(depth("circulant", kAllToAll, p), counts::ceil_log(ranks, 2));
    EXPECT_EQ(depth("circulant:radix=3", kAllToAll, p), counts::ceil_log(ranks, 3));
    const std::uint32_t groups = equal_groups(ranks);
    const std::uint32_t inner = 1, outer = groups > 1 ? 1 : 0;
    EXPECT_EQ(depth("hierarchical", kAllGather, p), counts::ceil_log(groups, 2) + inner);
    const std::uint32_t halves = counts::ceil_log(groups, 2);
    EXPECT_LE(depth("hierarchical", kReduceScatter, p), halves + inner);
    if (std::has_single_bit(groups)) {
      EXPECT_EQ(depth("hierarchical", kReduceScatter, p), halves + inner);
    }
    for (const Collective collective : {kGather, kScatter, kAllToAll})
      EXPECT_EQ(depth("hierarchical", collective, p), outer + inner);
    // Between groups the root stands above a tree of the others.
    const int levels_between = groups > 1 ? std::bit_width(groups - 1) : 0;
    EXPECT_EQ(depth("hierarchical", kReduce, p),
              static_cast<std::uint32_t>(levels_between) + inner);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PartTest, testing::ValuesIn(all_parts()), [](const auto& test) {
  std::string name = fmt::format("{}_{}", test.param.algorithm, name_of(test.param.collective));
  std::ranges::replace_if(
      name, [](char c) { return c == ':' || c == '='; }, '_');
  return name;
});

}  // namespace
}  // namespace tutti
