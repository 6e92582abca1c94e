// The list behind the family seal: every algorithm is proved at every rank count and replication
// for which proved_by_tests() says so.
#include <gtest/gtest.h>

#include <algorithm>

#include "algorithms/algorithm.hpp"
#include "schedule/passes.hpp"
#include "schedule/verifier.hpp"

namespace tutti {
namespace {

class Proved : public testing::TestWithParam<const Algorithm*> {};

TEST_P(Proved, AtEveryListedRankCount) {
  int proofs = 0;
  for (std::int32_t ranks = 1; ranks <= 130; ++ranks)
    for (const std::uint32_t replicas : {1u, 2u, 4u}) {
      if (!proved_by_tests(*GetParam(), ranks, replicas)) continue;
      const auto schedule = build_schedule(*GetParam(), {.ranks = ranks});
      ASSERT_TRUE(schedule) << schedule.error().message;
      const auto proof = verify(replicas == 1 ? *schedule : replicate(*schedule, replicas));
      ASSERT_TRUE(proof) << "ranks " << ranks << " replicas " << replicas << ": "
                         << proof.error().message;
      EXPECT_EQ(proof->minimal_slots, 2u);
      ++proofs;
    }
  EXPECT_EQ(proofs, 37 * 3);
}

TEST(ProvedList, HasAnEnd) {
  const Algorithm& ring = **find_algorithm("ring");
  EXPECT_TRUE(proved_by_tests(ring, 33, 4));
  EXPECT_FALSE(proved_by_tests(ring, 34, 1));
  EXPECT_FALSE(proved_by_tests(ring, 8, 3));
  EXPECT_FALSE(proved_by_tests(ring, 0, 1));
  EXPECT_FALSE(proved_by_tests(**find_algorithm("circulant:radix=3"), 8, 1));
}

std::string name_of_case(const testing::TestParamInfo<const Algorithm*>& test) {
  std::string name(test.param->name);
  std::ranges::replace_if(
      name, [](char letter) { return letter == ':' || letter == '='; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Proved, testing::ValuesIn(all_algorithms()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Direct, Proved, testing::ValuesIn(direct_algorithms()), name_of_case);

}  // namespace
}  // namespace tutti
