// SPDX-License-Identifier: Apache-2.0
// The proof from one rank's program against the proof of all of them, and what it refuses.
#include "algorithms/orbit_proof.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using ::testing::HasSubstr;

std::vector<const Algorithm*> every_algorithm() {
  std::vector<const Algorithm*> all(all_algorithms().begin(), all_algorithms().end());
  all.insert(all.end(), direct_algorithms().begin(), direct_algorithms().end());
  all.push_back(find_algorithm("circulant:radix=5").value());
  return all;
}

template <typename Visit>
void for_each_problem(std::int32_t ranks, Visit visit) {
  for (const Algorithm* algorithm : every_algorithm())
    for (std::size_t c = 1; c < kCollectiveCount; ++c) {
      const Problem problem{.collective = static_cast<Collective>(c), .ranks = ranks};
      if (algorithm->supports(problem)) visit(*algorithm, problem);
    }
}

TEST(OrbitProof, FindsWhatTheProofOfAllRanksFinds) {
  std::set<std::string> proved;
  for (const std::int32_t ranks : {2, 3, 4, 5, 6, 7, 8, 11, 12, 16, 21, 32, 33, 48, 64, 96})
    for_each_problem(ranks, [&](const Algorithm& algorithm, const Problem& problem) {
      std::vector<Rank> all;
      for (Rank rank = 0; rank < ranks; ++rank) all.push_back(rank);
      const Result<Proof> fast = prove_by_orbit(algorithm, problem, {}, all);
      if (!fast) {
        EXPECT_EQ(fast.error().code, Code::kNotSupported) << fast.error().message;
        return;
      }
      proved.insert(std::string(algorithm.name));
      const Result<Proof> whole = verify(build_schedule(algorithm, problem).value());
      ASSERT_TRUE(whole) << whole.error().message;
      const std::string where = std::string(algorithm.name) + ", " +
                                std::string(name_of(problem.collective)) + ", " +
                                std::to_string(ranks);
      EXPECT_EQ(fast->minimal_slots, whole->minimal_slots) << where;
      EXPECT_EQ(fast->depth, whole->depth) << where;
      EXPECT_EQ(fast->messages, whole->messages) << where;
      EXPECT_EQ(fast->max_sent_chunks, whole->max_sent_chunks) << where;
      EXPECT_EQ(fast->max_reduced_chunks, whole->max_reduced_chunks) << where;
      EXPECT_EQ(fast->max_roundings, whole->max_roundings) << where;
    });
  for (const char* name :
       {"ring", "rabenseifner", "circulant", "circulant:radix=5", "two_shot", "pat"})
    EXPECT_TRUE(proved.contains(name)) << name;
}

// What the choice asks before it offers a plan is what the plan will find.
TEST(OrbitProof, IsForeseenByTheCheapCheck) {
  for (const std::int32_t ranks : {129, 256})
    for_each_problem(ranks, [&](const Algorithm& algorithm, const Problem& problem) {
      const bool alike = algorithm.symmetry(problem) != Symmetry{};
      const bool direct = algorithm.name.find("remote") != std::string_view::npos;
      if (direct || (ranks > 129 && !alike)) return;  // as a whole, which takes long
      if (!check_provable(algorithm, problem)) return;
      const Result<Proof> proof = prove_any(algorithm, problem, {});
      EXPECT_TRUE(proof) << algorithm.name << ": " << proof.error().message;
    });
}

TEST(OrbitProof, TakesRanksByTheTensOfThousands) {
  for (const char* name : {"ring", "circulant", "pat", "rabenseifner"}) {
    const Problem problem{.collective = Collective::kAllReduce, .ranks = 1 << 14};
    const Rank compare[] = {12345};
    const Result<Proof> proof = prove_by_orbit(*find_algorithm(name).value(), problem, {}, compare);
    ASSERT_TRUE(proof) << proof.error().message;
    EXPECT_LT(proof->events, 20u << 14) << name;
  }
}

// A family whose programs were changed.
class Changed final : public Algorithm {
 public:
  using Change = std::function<void(Rank, RankProgram&)>;
  Changed(std::string_view of, Change change)
      : Algorithm("changed", "", ""),
        of_(*find_algorithm(of).value()),
        change_(std::move(change)) {}
  [[nodiscard]] bool supports(const Problem& problem) const override {
    return of_.supports(problem);
  }
  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    return of_.shape(problem);
  }
  [[nodiscard]] Symmetry symmetry(const Problem& problem) const override {
    return of_.symmetry(problem);
  }
  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
    RankProgram program = of_.program(problem, rank);
    change_(rank, program);
    return program;
  }

 private:
  const Algorithm& of_;
  Change change_;
};

Result<Proof> proof_of(std::string_view of, const Changed::Change& change,
                       std::span<const Rank> compare = {}) {
  return prove_by_orbit(Changed(of, change), {.collective = Collective::kAllReduce, .ranks = 16},
                        {}, compare);
}

std::vector<Step>& steps_of(RankProgram& program) { return program.lanes.front().steps; }

// The same change on every rank, so that only the rules can find it.
TEST(OrbitProof, RefusesWhatBreaksARule) {
  const auto falls = [](std::string_view of, const Changed::Change& change, const char* rule) {
    const Result<Proof> proof = proof_of(of, change);
    ASSERT_FALSE(proof) << rule;
    EXPECT_EQ(proof.error().code, Code::kInvalidUsage) << proof.error().message;
    EXPECT_THAT(proof.error().message, HasSubstr(rule));
  };
  falls(
      "ring", [](Rank, RankProgram& p) { steps_of(p).pop_back(); }, "messages sent and");
  falls(
      "ring", [](Rank, RankProgram& p) { steps_of(p)[3].sources.pop_back(); },
      "not the finished sum");
  falls(
      "ring",
      [](Rank, RankProgram& p) {
        for (Step& step : steps_of(p)) step.finish = false;
      },
      "not the finished sum");
  falls(
      "ring", [](Rank, RankProgram& p) { steps_of(p).back().finish = true; },
      "finishes a finished value");
  falls(
      "circulant", [](Rank, RankProgram& p) { std::swap(steps_of(p)[0], steps_of(p)[1]); },
      "stuck");
  falls(
      "ring",
      [](Rank, RankProgram& p) {
        Step& step = steps_of(p)[2];
        step.sources.push_back({.kind = OperandKind::kLocal,
                                .buffer = BufferKind::kInput,
                                .span = step.sources.back().span});
      },
      "comes twice");
  falls(
      "ring",
      [](Rank, RankProgram& p) {
        Step& step = steps_of(p)[4];
        for (auto* side : {&step.destinations, &step.sources})
          for (Operand& operand : *side) operand.span.first = (operand.span.first + 1) % 16;
      },
      "different chunks");
  falls(
      "circulant",
      [](Rank, RankProgram& p) {
        steps_of(p).front().sources.front().buffer = BufferKind::kOutput;
      },
      "which nothing wrote");
  falls(
      "two_shot", [](Rank, RankProgram& p) { steps_of(p).front().destinations.front().tag = 1; },
      "tag");
}

// A rank that does other work is found by whoever compares it: the rank itself.
TEST(OrbitProof, ComparesTheRanksThatItIsGiven) {
  const auto change = [](Rank rank, RankProgram& p) {
    if (rank == 11) steps_of(p)[5].finish = true;
  };
  const Rank other[] = {5}, that[] = {11};
  EXPECT_TRUE(proof_of("ring", change, other));
  const Result<Proof> proof = proof_of("ring", change, that);
  ASSERT_FALSE(proof);
  EXPECT_THAT(proof.error().message, HasSubstr("rank 11 does not do what rank 0 does"));
  // And then the whole schedule is verified, which finds it too.
  const Problem problem{.collective = Collective::kAllReduce, .ranks = 16};
  const Result<Proof> whole = prove_any(Changed("ring", change), problem, {}, that);
  ASSERT_FALSE(whole);
  EXPECT_EQ(whole.error().code, Code::kInvalidUsage) << whole.error().message;
}

// A reduction that runs an all-reduce: every rank would write a result that only the root has room
// for. One program cannot stand for the root's and the others'.
class EverybodysReduction final : public Algorithm {
 public:
  EverybodysReduction() : Algorithm("everybodys", "", ""), ring_(*find_algorithm("ring").value()) {}
  [[nodiscard]] bool supports(const Problem&) const override { return true; }
  [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
    ScheduleShape shape = ring_.shape(all_reduce(problem));
    shape.collective = problem.collective;
    return shape;
  }
  [[nodiscard]] Symmetry symmetry(const Problem& problem) const override {
    return ring_.symmetry(all_reduce(problem));
  }
  [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
    return ring_.program(all_reduce(problem), rank);
  }

 private:
  static Problem all_reduce(const Problem& problem) {
    return {.collective = Collective::kAllReduce, .ranks = problem.ranks};
  }
  const Algorithm& ring_;
};

TEST(OrbitProof, OfARootedCollectiveIsRefused) {
  const EverybodysReduction algorithm;
  const Problem problem{.collective = Collective::kReduce, .ranks = 16};
  const Result<Proof> by_orbit = prove_by_orbit(algorithm, problem, {});
  ASSERT_FALSE(by_orbit);
  EXPECT_EQ(by_orbit.error().code, Code::kNotSupported) << by_orbit.error().message;
  const Result<Proof> whole = prove_any(algorithm, problem, {});
  ASSERT_FALSE(whole);
  EXPECT_EQ(whole.error().code, Code::kInvalidUsage) << whole.error().message;
}

TEST(OrbitProof, ChecksTheShape) {
  class NoTags final : public Algorithm {
   public:
    NoTags() : Algorithm("no_tags", "", "") {}
    [[nodiscard]] bool supports(const Problem&) const override { return true; }
    [[nodiscard]] ScheduleShape shape(const Problem& problem) const override {
      ScheduleShape shape = ring().shape(problem);
      shape.tags = 0;
      return shape;
    }
    [[nodiscard]] Symmetry symmetry(const Problem& problem) const override {
      return ring().symmetry(problem);
    }
    [[nodiscard]] RankProgram program(const Problem& problem, Rank rank) const override {
      return ring().program(problem, rank);
    }
    static const Algorithm& ring() { return *find_algorithm("ring").value(); }
  };
  const Result<Proof> proof =
      prove_by_orbit(NoTags(), {.collective = Collective::kAllReduce, .ranks = 16}, {});
  ASSERT_FALSE(proof);
  EXPECT_THAT(proof.error().message, HasSubstr("tags is 0"));
}

TEST(OrbitProof, SaysWhyItDoesNotApply) {
  const Problem problem{.collective = Collective::kAllReduce, .ranks = 24};
  for (const auto& [name, why] : {std::pair{"tree", "its ranks are not all alike"},
                                  {"butterfly", "its ranks are not all alike"},
                                  {"one_shot", "all ranks work on the same chunk"},
                                  {"two_shot:access=remote", "it works in other ranks' memory"},
                                  {"two_shot:access=store", "it works in other ranks' memory"}}) {
    const Result<Proof> proof = prove_by_orbit(*find_algorithm(name).value(), problem, {});
    ASSERT_FALSE(proof) << name;
    EXPECT_EQ(proof.error().code, Code::kNotSupported);
    EXPECT_THAT(proof.error().message, HasSubstr(why));
    EXPECT_TRUE(prove_any(*find_algorithm(name).value(), problem, {})) << name;
  }
  const Result<Proof> large =
      prove_any(*find_algorithm("tree").value(),
                {.collective = Collective::kAllReduce, .ranks = 1 << 18}, {});
  ASSERT_FALSE(large);
  EXPECT_THAT(large.error().message, HasSubstr("take ring or circulant"));
}

}  // namespace
}  // namespace tutti
