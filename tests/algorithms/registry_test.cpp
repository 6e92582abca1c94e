#include <gtest/gtest.h>

#include <set>

#include "algorithms/algorithm.hpp"

namespace tutti {
namespace {

TEST(Registry, EveryFamilyIsFoundByItsNameAndSaysWhatItIs) {
  std::set<std::string_view> names;
  for (const Algorithm* algorithm : all_algorithms()) {
    EXPECT_EQ(find_algorithm(algorithm->name), algorithm);
    EXPECT_TRUE(names.insert(algorithm->name).second) << algorithm->name;
    EXPECT_FALSE(algorithm->summary.empty());
    EXPECT_FALSE(algorithm->source.empty());
    EXPECT_LE(algorithm->summary.size(), 100U);
  }
  EXPECT_EQ(find_algorithm("rung"), nullptr);
  EXPECT_EQ(find_algorithm(""), nullptr);
}

TEST(Registry, RefusesProblemsThatAreNone) {
  for (const Algorithm* algorithm : all_algorithms()) {
    EXPECT_EQ(build_schedule(*algorithm, {.ranks = 0}).error().code, Code::kInvalidArgument);
    EXPECT_EQ(build_schedule(*algorithm, {.ranks = -4}).error().code, Code::kInvalidArgument);
    EXPECT_EQ(build_schedule(*algorithm, {.ranks = 4, .root = 4}).error().code,
              Code::kInvalidArgument);
    EXPECT_EQ(build_schedule(*algorithm, {.ranks = 4, .root = -1}).error().code,
              Code::kInvalidArgument);
  }
}

TEST(Registry, SaysWhatIsNotSupported) {
  for (const Algorithm* algorithm : all_algorithms())
    for (int i = 0; i < kCollectiveCount; ++i) {
      const Problem problem{.collective = static_cast<Collective>(i), .ranks = 4};
      const Result<Schedule> schedule = build_schedule(*algorithm, problem);
      EXPECT_EQ(schedule.has_value(), algorithm->supports(problem));
      if (schedule) {
        EXPECT_EQ(schedule->shape.collective, problem.collective);
      } else {
        EXPECT_EQ(schedule.error().code, Code::kNotSupported);
        EXPECT_NE(schedule.error().message.find(name_of(problem.collective)), std::string::npos);
      }
    }
}

}  // namespace
}  // namespace tutti
