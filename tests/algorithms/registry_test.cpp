// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "algorithms/algorithm.hpp"
#include "counts.hpp"

namespace tutti {
namespace {

bool supports_any(const Algorithm& algorithm) {
  for (std::size_t c = 1; c < kCollectiveCount; ++c)
    if (algorithm.supports({.collective = static_cast<Collective>(c), .ranks = 4})) return true;
  return false;
}

// Threads of ranks may outlive main. Made before any family, so destroyed after all that is; what
// a family that was destroyed answers, UndefinedBehaviorSanitizer tells.
struct AfterMain {
  ~AfterMain() {
    for (const auto& list : {all_algorithms(), direct_algorithms()})
      for (const Algorithm* algorithm : list)
        if (!supports_any(*algorithm)) std::_Exit(1);
  }
} const after_main;

TEST(Registry, EveryFamilyIsFoundByItsNameAndSaysWhatItIs) {
  std::set<std::string_view> names;
  for (const Algorithm* algorithm : all_algorithms()) {
    EXPECT_EQ(*find_algorithm(algorithm->name), algorithm);
    EXPECT_TRUE(names.insert(algorithm->name).second) << algorithm->name;
    EXPECT_FALSE(algorithm->summary.empty());
    EXPECT_FALSE(algorithm->source.empty());
    EXPECT_LE(algorithm->summary.size(), 100U);
  }
  EXPECT_EQ(find_algorithm("rung").error().message,
            "unknown algorithm 'rung'; choose one of " + known_algorithms());
  EXPECT_FALSE(find_algorithm(""));
}

TEST(Registry, ParametersMakeVariantsThatStay) {
  const Algorithm* const radix3 = *find_algorithm("circulant:radix=3");
  EXPECT_EQ(*find_algorithm("circulant:radix=3"), radix3);
  EXPECT_NE(*find_algorithm("circulant"), radix3);
  EXPECT_EQ(radix3->name, "circulant:radix=3");
  EXPECT_EQ(radix3->shape({.collective = Collective::kAllReduce, .ranks = 4}).algorithm,
            "circulant:radix=3");
}

std::uint64_t remotes_of(const Schedule& schedule) {
  std::uint64_t chunks = 0;
  for (const RankProgram& program : schedule.ranks)
    chunks += counts::chunks_of(program, OperandKind::kRemote);
  return chunks;
}

TEST(Registry, DirectFormsAreFoundByTheirNameAndHaveRemoteOperands) {
  ASSERT_FALSE(direct_algorithms().empty());
  for (const Algorithm* algorithm : direct_algorithms()) {
    EXPECT_EQ(*find_algorithm(algorithm->name), algorithm);
    EXPECT_LE(algorithm->summary.size(), 100U);
    int collectives = 0;
    for (std::size_t c = 1; c < kCollectiveCount; ++c) {
      const Problem problem{.collective = static_cast<Collective>(c), .ranks = 3};
      if (!algorithm->supports(problem)) continue;
      ++collectives;
      EXPECT_GT(remotes_of(*build_schedule(*algorithm, problem)), 0U)
          << algorithm->name << " " << c;
    }
    EXPECT_GT(collectives, 0) << algorithm->name;
  }
}

TEST(Registry, BadParametersGetOneClearLine) {
  const auto message = [](std::string_view name) {
    const auto found = find_algorithm(name);
    return found ? "accepted" : found.error().message;
  };
  EXPECT_EQ(message("tree:radix=3"), "tree takes no parameters, so 'radix' cannot be set");
  for (const char* name : {"ring:exchange=both", "ring:radix=3"})
    EXPECT_NE(message(name).find("it takes exchange=next|neighbours"), std::string::npos)
        << message(name);
  for (const char* name : {"circulant:radix=1", "circulant:radix=65", "circulant:radix=x",
                           "circulant:radix=3x", "circulant:size=3"})
    EXPECT_NE(message(name).find("it takes radix=2..64"), std::string::npos) << message(name);
  for (const char* name : {"circulant:", "circulant:radix", "circulant:radix=", "circulant:=3"})
    EXPECT_NE(message(name).find("is not of the form key=value"), std::string::npos)
        << message(name);
  for (const char* name : {"two_shot:access=local", "two_shot:reach=remote"})
    EXPECT_NE(message(name).find("it takes access=messages|remote|store"), std::string::npos);
  for (const char* name : {"hierarchical:form=star", "hierarchical:size=4"})
    EXPECT_NE(message(name).find("it takes form="), std::string::npos) << message(name);
  for (const char* name :
       {"hierarchical:groups=", "hierarchical:groups=4+", "hierarchical:groups=0",
        "hierarchical:groups=4,4", "hierarchical:groups=2x", "hierarchical:groups=x4",
        "hierarchical:groups=-1", "hierarchical:groups=99999999999"})
    EXPECT_NE(message(name), "accepted") << name;
  // Sums that would overflow 32 bits, and lists that would not fit in memory.
  for (const char* name :
       {"hierarchical:groups=1048577", "hierarchical:groups=1048576+1",
        "hierarchical:groups=1048576x1048576", "hierarchical:groups=1x1048576+1x1048576",
        "hierarchical:groups=2147483647x2147483647"})
    EXPECT_NE(message(name).find("adds up to more than 1048576 ranks"), std::string::npos)
        << message(name);
  for (const char* name : {"hierarchical:groups=4:groups=2", "circulant:radix=2:radix=2"})
    EXPECT_NE(message(name).find("appears twice"), std::string::npos) << message(name);
  EXPECT_NE(message("hierarchical:inner=rung").find("choose one of ring"), std::string::npos);
  // What cannot be a part says which part it would be, why not, and which can.
  EXPECT_EQ(message("hierarchical:inner=butterfly"),
            "hierarchical: inner=butterfly: it has no reduce_scatter and all_gather of its own; "
            "form=rails takes ring, rabenseifner, circulant, two_shot");
  EXPECT_EQ(message("hierarchical:form=leader:inner=two_shot"),
            "hierarchical: inner=two_shot: it has no reduce and broadcast of its own; form=leader "
            "takes ring, tree, butterfly, rabenseifner, one_shot");
  EXPECT_NE(
      message("hierarchical:inner=pat").find("strided, so it can only be outer; form=rails takes"),
      std::string::npos);
  EXPECT_EQ(
      message("hierarchical:inner=circulant:inner.radix=99"),
      "hierarchical: inner=circulant: circulant does not accept 'radix=99'; it takes radix=2..64");
  EXPECT_EQ(message("hierarchical:outer=tree:outer.radix=3"),
            "hierarchical: outer=tree: tree takes no parameters, so 'radix' cannot be set");
  for (const char* name :
       {"hierarchical:inner=two_shot:inner.access=remote", "hierarchical:inner.access=remote",
        "hierarchical:outer=two_shot:outer.access=remote"})
    EXPECT_NE(message(name).find("two_shot:access=remote: it works in its peers' memory"),
              std::string::npos)
        << message(name);
  for (const char* form : {"one_shot:access=remote", "one_shot:access=store"}) {
    const std::string access = std::string(form).substr(9);
    EXPECT_NE(message("hierarchical:outer=one_shot:outer." + access)
                  .find(std::string(form) + ": it works in its peers' memory"),
              std::string::npos);
    EXPECT_NE(message("hierarchical:form=leader:inner=one_shot:inner." + access)
                  .find(std::string(form) + ": it has no reduce and broadcast"),
              std::string::npos);
  }
  EXPECT_NE(message("hierarchical:inner=two_shot:inner.access=store")
                .find("two_shot:access=store: it has no reduce_scatter"),
            std::string::npos);
  EXPECT_NE(message("hierarchical:outer=two_shot:outer.access=store")
                .find("two_shot:access=store: it works in its peers' memory"),
            std::string::npos);
  for (const char* name : {"hierarchical:inner.=3", "hierarchical:innerradix=3",
                           "hierarchical:middle.radix=3", "hierarchical:form.radix=3"})
    EXPECT_NE(message(name).find("it takes form="), std::string::npos) << message(name);
  EXPECT_NE(message("hierarchical:inner=circulant:inner.radix=2:inner.radix=3").find("twice"),
            std::string::npos);
  EXPECT_NE(message("hierarchical:outer=hierarchical").find("more than two levels"),
            std::string::npos);
}

TEST(Registry, EveryFamilyTakesTheParametersThatItNames) {
  const auto message = [](std::string_view name, std::string_view parameter) {
    return find_algorithm(fmt::format("{}:{}", name, parameter)).error().message;
  };
  std::size_t with_parameters = 0;
  for (const Algorithm* algorithm : all_algorithms()) {
    const std::string refusal = message(algorithm->name, "colour=red");
    if (algorithm->parameters.empty()) {
      EXPECT_EQ(refusal,
                fmt::format("{} takes no parameters, so 'colour' cannot be set", algorithm->name));
      continue;
    }
    ++with_parameters;
    EXPECT_EQ(refusal, fmt::format("{} does not accept 'colour=red'; it takes {}", algorithm->name,
                                   algorithm->parameters));
  }
  EXPECT_EQ(with_parameters, 5U);
  for (const char* name :
       {"ring:exchange=next", "ring:exchange=neighbours", "circulant:radix=2", "circulant:radix=64",
        "one_shot:access=messages", "one_shot:access=remote", "one_shot:access=store",
        "two_shot:access=messages", "two_shot:access=remote", "two_shot:access=store",
        "hierarchical:form=leader", "hierarchical:form=rails",
        "hierarchical:inner=ring:outer=tree:groups=4+4+1", "hierarchical:groups=2x4",
        "hierarchical:groups=1048576",
        "hierarchical:inner=circulant:inner.radix=3:outer=circulant:outer.radix=4:groups=2x4"})
    EXPECT_TRUE(find_algorithm(name)) << name;
}

TEST(Registry, RefusesProblemsThatAreNone) {
  for (const Algorithm* algorithm : all_algorithms()) {
    EXPECT_EQ(
        build_schedule(*algorithm, {.collective = Collective::kAllReduce, .ranks = 0}).error().code,
        Code::kInvalidArgument);
    EXPECT_EQ(build_schedule(*algorithm, {.collective = Collective::kAllReduce, .ranks = -4})
                  .error()
                  .code,
              Code::kInvalidArgument);
    EXPECT_EQ(
        build_schedule(*algorithm, {.collective = Collective::kAllReduce, .ranks = 4, .root = 4})
            .error()
            .code,
        Code::kInvalidArgument);
    EXPECT_EQ(
        build_schedule(*algorithm, {.collective = Collective::kAllReduce, .ranks = 4, .root = -1})
            .error()
            .code,
        Code::kInvalidArgument);
  }
}

TEST(Registry, SaysWhatIsNotSupported) {
  for (const Algorithm* algorithm : all_algorithms())
    for (std::size_t i = 1; i < kCollectiveCount; ++i) {
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
