// SPDX-License-Identifier: Apache-2.0
// The mutation campaign: the verifier judged by an executor that shares no code with it.
//
// Each schedule is changed in one place at a time. The verifier kills a mutant or accepts it. An
// accepted one must survive kInterleavings random interleavings at its minimal slots, so that
// whatever the verifier lets pass is harmless; a kind of change that can never be harmless must be
// killed, and its killed mutants must fail in the executor too, so that the executor is known to
// see.
//
// Every drawn mutant gets a verdict, so that the share killed is that of the draw. Only under a
// sanitizer are the runs sampled, the first of a kind and schedule; the column "run" counts them.
#include "mutation.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <map>

#include "algorithms/algorithm.hpp"
#include "reference_executor.hpp"
#include "schedule/passes.hpp"
#include "schedule/verifier.hpp"
#include "tests/algorithms/direct_forms.hpp"
#include "verifier_samples.hpp"

namespace tutti::mutation {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// A sanitizer makes each run several times as long.
constexpr std::int32_t kMostRanks = 9;
constexpr std::int32_t kMostRanksOfParts = 3;  // of all but all-reduces
constexpr std::size_t kStepBudget = 300;
constexpr bool kRunAllAccepted = false;
constexpr int kUnmutatedInterleavings = 100;
#else
constexpr std::int32_t kMostRanks = 16;
constexpr std::int32_t kMostRanksOfParts = 9;
constexpr std::size_t kStepBudget = 1000;
constexpr bool kRunAllAccepted = true;
constexpr int kUnmutatedInterleavings = 1000;
#endif
constexpr std::uint64_t kSeed = 20240607;
// Of each accepted mutant that is run. Of 13,885 killed mutants of 3, 6 and 8 ranks that fail
// within a thousand interleavings, 97% fail in the first one and all within 19.
constexpr int kInterleavings = 200;
constexpr int kKilledInterleavings = 50;   // of each sampled killed mutant, until one fails
constexpr std::size_t kKilledSamples = 6;  // a kind
constexpr std::size_t kPairs = kKinds;     // row of the tallies: two mutations at once

struct Case {
  std::string_view algorithm;
  Collective collective;
  std::int32_t ranks;
  std::uint32_t replicas;

  [[nodiscard]] Problem problem() const { return {collective, ranks, ranks / 2}; }
};

bool is_all_reduce(const Case& c) { return c.collective == Collective::kAllReduce; }

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name =
      fmt::format("{}_p{}_w{}", info.param.algorithm, info.param.ranks, info.param.replicas);
  if (!is_all_reduce(info.param))
    name = fmt::format("{}_{}", tutti::name_of(info.param.collective), name);
  std::ranges::replace_if(
      name, [](char letter) { return letter == ':' || letter == '='; }, '_');
  return name;
}

// The other collectives of the families, and a sample that keeps everything in scratch.
void add_parts(std::vector<Case>& cases) {
  std::vector<const Algorithm*> algorithms = test::every_form();
  algorithms.push_back(*find_algorithm("ring:exchange=neighbours"));
  for (const std::int32_t ranks : {2, 3, 6, 9}) {
    if (ranks > kMostRanksOfParts) continue;
    const std::uint32_t replicas = ranks == 3 ? 2 : 1;
    cases.push_back({"packed", Collective::kReduceScatter, ranks, replicas});
    for (std::size_t c = 1; c < kCollectiveCount; ++c)
      for (const Algorithm* algorithm : algorithms) {
        const Case part{algorithm->name, static_cast<Collective>(c), ranks, replicas};
        if (is_all_reduce(part) || !algorithm->supports(part.problem())) continue;
        // Of many ranks, those that use scratch.
        if (ranks < 9 || algorithm->shape(part.problem()).scratch_chunks > 0) cases.push_back(part);
      }
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  std::vector<std::string_view> algorithms{"staged", "peer_read"};
  for (const Algorithm* algorithm : all_algorithms()) algorithms.push_back(algorithm->name);
  for (const Algorithm* algorithm : direct_algorithms()) algorithms.push_back(algorithm->name);
  for (const std::string_view variant :
       {"ring:exchange=neighbours", "hierarchical:form=leader", "hierarchical:inner=rabenseifner",
        "hierarchical:form=leader:inner=butterfly"})
    algorithms.push_back(variant);
  for (const std::string_view algorithm : algorithms)
    for (const std::int32_t ranks : {2, 3, 4, 5, 6, 7, 8, 9, 16})
      for (const std::uint32_t replicas : {1U, 2U}) {
        const Case one{algorithm, Collective::kAllReduce, ranks, replicas};
        const auto family = find_algorithm(algorithm);
        if (family && !(*family)->supports(one.problem())) continue;
        if (ranks < 6 || (family && ranks <= kMostRanks)) cases.push_back(one);
      }
  cases.push_back({"staged", Collective::kAllReduce, 7, 1});
  add_parts(cases);
  return cases;
}

Schedule make(const Case& c) {
  if (c.algorithm == "staged") return replicate(samples::staged(c.ranks, 2), c.replicas);
  if (c.algorithm == "packed") return replicate(samples::packed(c.ranks, 2), c.replicas);
  if (c.algorithm == "peer_read") return replicate(samples::peer_read(c.ranks), c.replicas);
  return replicate(*build_schedule(**find_algorithm(c.algorithm), c.problem()), c.replicas);
}

std::size_t steps_of(const Schedule& schedule) {
  std::size_t steps = 0;
  for (const RankProgram& program : schedule.ranks)
    for (const Lane& lane : program.lanes) steps += lane.steps.size();
  return steps;
}

struct Tally {
  std::size_t mutants = 0;
  std::size_t killed = 0;
  std::size_t accepted = 0;
  std::size_t accepted_run = 0;    // of those, run in kInterleavings
  std::size_t harmful = 0;         // of those, failed
  std::size_t killed_sampled = 0;  // killed, and run nevertheless
  std::size_t killed_failed = 0;   // of those, failed

  void add(const Tally& other) {
    mutants += other.mutants;
    killed += other.killed;
    accepted += other.accepted;
    accepted_run += other.accepted_run;
    harmful += other.harmful;
    killed_sampled += other.killed_sampled;
    killed_failed += other.killed_failed;
  }
};
using Tallies = std::array<Tally, kKinds + 1>;

void print_head(const std::string& title, std::string_view rows) {
  std::cout << fmt::format("{} (seed {})\n{:<28}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}\n", title, kSeed,
                           rows, "mutants", "killed", "accepted", "run", "harmful", "seen*");
}

void print_row(std::string_view name, const Tally& t) {
  if (t.mutants == 0) return;
  std::cout << fmt::format("{:<28}{:>9}{:>9}{:>9}{:>9}{:>9}{:>10}\n", name, t.mutants, t.killed,
                           t.accepted, t.accepted_run, t.harmful,
                           fmt::format("{}/{}", t.killed_failed, t.killed_sampled));
}

void print(const std::string& title, const Tallies& tallies) {
  print_head(title, "kind");
  for (std::size_t k = 0; k < tallies.size(); ++k)
    print_row(k == kPairs ? "two of these at once" : kTraits[k].name, tallies[k]);
}

void print(const std::string& title, const std::map<std::string_view, Tally>& by_algorithm) {
  print_head(title, "algorithm");
  for (const auto& [name, tally] : by_algorithm) print_row(name, tally);
  std::cout << fmt::format(
      "run: in {} interleavings; * killed mutants that failed in the executor within {}, of those "
      "sampled\n",
      kInterleavings, kKilledInterleavings);
}

// What the executor says in up to `runs` interleavings.
std::optional<std::string> first_failure(const Schedule& schedule, std::uint32_t slots, int runs,
                                         reference::Random& seeds) {
  reference::ReferenceExecutor executor(schedule);
  for (int i = 0; i < runs; ++i) {
    const std::uint64_t seed = seeds.next();
    if (auto failure = executor.run({.slots = slots, .seed = seed, .slices = 0, .in_place = {}}))
      return fmt::format("{} (interleaving seed {})", *failure, seed);
  }
  return std::nullopt;
}

// The mutations of a kind, shuffled and cut to what the case may cost.
std::vector<Mutation> sample(const Schedule& schedule, Kind kind, reference::Random& random) {
  std::vector<Mutation> all = mutations_of(schedule, kind);
  for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
  const std::size_t most = std::max<std::size_t>(3, kStepBudget / steps_of(schedule));
  if (all.size() > most) all.resize(most);
  return all;
}

// One mutation of a kind drawn first, so that rare kinds come as often as others.
Mutation any_mutation(const Schedule& schedule, reference::Random& random) {
  for (;;) {
    const auto all = mutations_of(schedule, static_cast<Kind>(random.below(kKinds)));
    if (!all.empty()) return all[random.below(all.size())];
  }
}

class MutationTest : public testing::TestWithParam<Case> {
 protected:
  static void TearDownTestSuite() {
    print("all schedules of this process", totals_);
    print("the same by algorithm", by_algorithm_);
  }

  void try_mutant(const Schedule& mutant, const std::string& what, bool fatal, Tally& tally) {
    const Result<Proof> proof = verify(mutant);
    ++tally.mutants;
    if (proof) {
      ++tally.accepted;
      EXPECT_FALSE(fatal) << what << "\naccepted, though it cannot be right";
      if (!kRunAllAccepted && tally.accepted_run > 0) return;
      ++tally.accepted_run;
      const auto failure = first_failure(mutant, proof->minimal_slots, kInterleavings, seeds_);
      if (failure) ++tally.harmful;
      EXPECT_FALSE(failure) << what << "\naccepted, but: " << failure.value_or("");
      return;
    }
    ++tally.killed;
    EXPECT_EQ(proof.error().code, Code::kInvalidUsage) << proof.error().message;
    if (tally.killed_sampled == kKilledSamples) return;
    ++tally.killed_sampled;
    const auto failure = first_failure(mutant, 2, kKilledInterleavings, seeds_);
    if (failure) ++tally.killed_failed;
    EXPECT_TRUE(failure || !fatal) << what << "\nnever failed, but: " << proof.error().message;
  }

  void try_kind(const Schedule& schedule, Kind kind, Tally& tally) {
    for (const Mutation& mutation : sample(schedule, kind, seeds_)) {
      const Schedule mutant = apply(schedule, mutation);
      if (mutant == schedule) continue;
      try_mutant(mutant, describe(mutation), is_fatal(schedule, mutation), tally);
    }
  }

  void try_pairs(const Schedule& schedule, Tally& tally) {
    const std::size_t pairs = std::max<std::size_t>(20, kStepBudget / steps_of(schedule));
    for (std::size_t i = 0; i < pairs; ++i) {
      const auto first = any_mutation(schedule, seeds_);
      const Schedule once = apply(schedule, first);
      const auto second = any_mutation(once, seeds_);
      const Schedule twice = apply(once, second);
      if (twice == schedule) continue;
      try_mutant(twice, describe(first) + "; then " + describe(second), false, tally);
    }
  }

  static inline Tallies totals_;
  static inline std::map<std::string_view, Tally> by_algorithm_;
  reference::Random seeds_{kSeed};
};

TEST_P(MutationTest, AcceptedMutantsAreHarmless) {
  const Schedule schedule = make(GetParam());
  Tallies tallies;
  for (int k = 0; k < kKinds; ++k)
    try_kind(schedule, static_cast<Kind>(k), tallies[static_cast<std::size_t>(k)]);
  try_pairs(schedule, tallies[kPairs]);
  print(name_of({GetParam(), 0}), tallies);
  for (std::size_t k = 0; k < tallies.size(); ++k) {
    totals_[k].add(tallies[k]);
    by_algorithm_[GetParam().algorithm].add(tallies[k]);
  }
}

TEST_P(MutationTest, UnmutatedSchedulesPass) {
  const Schedule schedule = make(GetParam());
  const Result<Proof> proof = verify(schedule);
  ASSERT_TRUE(proof) << proof.error().message;
  const auto failure =
      first_failure(schedule, proof->minimal_slots, kUnmutatedInterleavings, seeds_);
  EXPECT_FALSE(failure) << failure.value_or("") << "; seeds from " << kSeed;
}

INSTANTIATE_TEST_SUITE_P(Schedules, MutationTest, testing::ValuesIn(all_cases()), name_of);

}  // namespace
}  // namespace tutti::mutation
