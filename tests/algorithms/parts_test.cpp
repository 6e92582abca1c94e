// SPDX-License-Identifier: Apache-2.0
// The collectives that are no all-reduce, of the families that have them, with every root: exact
// shapes and the bytes that they need. Their proofs stand in proved_test.cpp; here those of
// variants, which are on no list.
#include <fmt/core.h>
#include <gtest/gtest.h>

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
       {"ring", "tree", "butterfly", "rabenseifner", "one_shot", "two_shot", "circulant",
        "circulant:radix=3", "circulant:radix=5", "pat"})
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

// Half an all-reduce: each rank sends (p-1)/p of the bytes, or the tree's and star's edges.
TEST_P(PartTest, AllRanksTogetherSendWhatTheCollectiveNeeds) {
  at_every_rank_count_and_root([](const Schedule& schedule) {
    const auto p = static_cast<std::uint64_t>(schedule.shape.ranks);
    std::uint64_t sent = 0;
    for (const RankProgram& program : schedule.ranks) sent += counts::of(program).sent_chunks;
    EXPECT_EQ(sent, (p - 1) * schedule.shape.chunks);
  });
}

INSTANTIATE_TEST_SUITE_P(All, PartTest, testing::ValuesIn(all_parts()), [](const auto& test) {
  std::string name = fmt::format("{}_{}", test.param.algorithm, name_of(test.param.collective));
  std::ranges::replace_if(
      name, [](char c) { return c == ':' || c == '='; }, '_');
  return name;
});

}  // namespace
}  // namespace tutti
