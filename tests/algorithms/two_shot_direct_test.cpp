// SPDX-License-Identifier: Apache-2.0
// The forms of two_shot that work in their peers' memory: their formulas, and that no signal of
// them can be left out or come at another time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "counts.hpp"
#include "direct_forms.hpp"
#include "samples.hpp"
#include "schedule/verifier.hpp"

namespace tutti {
namespace {

using test::without_signal;
using testing::StartsWith;

struct Form {
  const char* name;
  std::uint64_t signals;  // in a row
  bool loads_alone;
};
constexpr Form kRemote{"two_shot:access=remote", 3, true};
constexpr Form kStore{"two_shot:access=store", 2, false};

class TwoShotDirect : public testing::TestWithParam<Form> {};

TEST_P(TwoShotDirect, CountsAreThoseOfTheFormula) {
  const Form& form = GetParam();
  for (std::uint64_t p = 2; p <= 65; ++p) {
    SCOPED_TRACE(p);
    const Schedule schedule = samples::built(form.name, static_cast<std::int32_t>(p));
    ASSERT_EQ(schedule.shape.chunks, p);
    for (const RankProgram& program : schedule.ranks) {
      const counts::RankCounts counts = counts::of(program);
      EXPECT_EQ(counts.messages, form.signals * (p - 1));
      EXPECT_EQ(counts.sent_chunks, 0U);
      EXPECT_EQ(counts.reduced_chunks, p - 1);
      EXPECT_EQ(counts.finished_chunks, 1U);
      EXPECT_EQ(counts::chunks_of(program, OperandKind::kRemote), 2 * (p - 1));
      EXPECT_EQ(counts::chunks_of(program, OperandKind::kLocal), form.loads_alone ? p + 1 : 2);
    }
    EXPECT_EQ(verify(schedule)->depth, form.signals);
    const counts::Connections connections(schedule);
    EXPECT_EQ(schedule.shape.max_incoming, connections.max_incoming());
    EXPECT_EQ(schedule.shape.max_per_pair, connections.max_per_pair());
  }
}

TEST_P(TwoShotDirect, ItsHalvesAreProvedToo) {
  const Algorithm& algorithm = **find_algorithm(GetParam().name);
  for (const Collective collective : {Collective::kReduceScatter, Collective::kAllGather})
    for (std::int32_t p = 1; p <= 17; ++p) {
      const Problem problem{.collective = collective, .ranks = p};
      const bool has = collective == Collective::kAllGather || GetParam().loads_alone;
      ASSERT_EQ(algorithm.supports(problem), has);
      if (!has) continue;
      const auto schedule = build_schedule(algorithm, problem);
      ASSERT_TRUE(schedule) << schedule.error().message;
      const auto proof = verify(*schedule);
      EXPECT_TRUE(proof) << name_of(collective) << " " << p << ": " << proof.error().message;
    }
}

INSTANTIATE_TEST_SUITE_P(, TwoShotDirect, testing::Values(kRemote, kStore), [](const auto& of) {
  return std::string(of.param.loads_alone ? "remote" : "store");
});

void expect_rules(const char* name, Collective collective, std::vector<const char*> rules) {
  const Schedule whole =
      *build_schedule(**find_algorithm(name), {.collective = collective, .ranks = 3});
  for (int which = 0; which < std::ssize(rules); ++which) {
    const auto proof = verify(*without_signal(whole, 0, 1, which));
    ASSERT_FALSE(proof) << "signal " << which;
    EXPECT_THAT(proof.error().message, StartsWith(rules[static_cast<std::size_t>(which)]));
  }
}

TEST(TwoShotSignals, NoSignalCanBeLeftOut) {
  using enum Collective;
  expect_rules(kRemote.name, kAllReduce, {"remote begin: ", "race: ", "remote end: "});
  expect_rules(kStore.name, kAllReduce, {"remote begin: ", "remote end: "});
  expect_rules(kStore.name, kAllGather, {"remote begin: ", "remote end: "});
  expect_rules(kRemote.name, kAllToAll, {"remote begin: ", "remote end: "});
}

TEST(TwoShotRemote, ReadsTheBlocksOfAnAllToAllWhereTheyLie) {
  const Algorithm& algorithm = **find_algorithm(kRemote.name);
  for (std::int32_t p = 1; p <= 33; ++p) {
    SCOPED_TRACE(p);
    const auto schedule = build_schedule(algorithm, {Collective::kAllToAll, p});
    ASSERT_TRUE(schedule) << schedule.error().message;
    const auto proof = verify(*schedule);
    ASSERT_TRUE(proof) << proof.error().message;
    EXPECT_EQ(proof->depth, p > 1 ? 2U : 0U);
    EXPECT_EQ(schedule->shape.apart, p > 1);
    for (const RankProgram& program : schedule->ranks) {
      const counts::RankCounts counts = counts::of(program);
      EXPECT_EQ(counts.messages, 2U * static_cast<unsigned>(p - 1));
      EXPECT_EQ(counts.sent_chunks, 0U);
      EXPECT_EQ(counts::chunks_of(program, OperandKind::kRemote), static_cast<unsigned>(p - 1));
    }
  }
}

// Its peers have yet to read a block that a rank writes over, were input and output one memory.
TEST(TwoShotRemote, KeepsInputAndOutputOfAnAllToAllApart) {
  for (const std::int32_t p : {2, 3, 8}) {
    Schedule schedule = *build_schedule(**find_algorithm(kRemote.name), {Collective::kAllToAll, p});
    EXPECT_TRUE(verify(schedule));
    schedule.shape.apart = false;
    const auto proof = verify(schedule);
    ASSERT_FALSE(proof);
    EXPECT_THAT(proof.error().message,
                testing::AnyOf(StartsWith("race: "), StartsWith("in place: ")));
  }
}

// What is apart is no more than that: an output chunk that two write is still a race.
TEST(TwoShotRemote, ApartOutputsAreCheckedAllTheSame) {
  using namespace operands;
  Schedule schedule = *build_schedule(**find_algorithm(kRemote.name), {Collective::kAllToAll, 3});
  Step& own = schedule.ranks[0].lanes[0].steps[1];
  own.destinations.push_back(output(chunk(0)));
  EXPECT_THAT(
      verify(schedule).error().message,
      StartsWith("step overlap: rank 0, lane 0 'direct', step 1: output chunk 0 of rank 0 is "
                 "written twice"));
}

// The form that stores, among three, changed in the program of rank 0.
template <typename Change>
std::string store_with(Change change) {
  Schedule schedule = samples::built(kStore.name, 3);
  change(schedule.ranks[0].lanes[0].steps);
  const auto proof = verify(schedule);
  return proof ? "" : proof.error().message;
}

TEST(TwoShotStore, StoresLieBetweenThePeersBeginAndEnd) {
  EXPECT_EQ(store_with([](auto&) {}), "");
  // Before the peers have begun, and after they have been told that it is over.
  EXPECT_THAT(store_with([](auto& steps) { std::swap(steps[1], steps[2]); }),
              StartsWith("remote begin: rank 0, lane 0 'direct', step 1: touches memory of rank "));
  EXPECT_THAT(store_with([](auto& steps) { std::swap(steps[2], steps[3]); }),
              StartsWith("remote end: rank 0, lane 0 'direct', step 3: touches memory of rank "));
}

TEST(TwoShotStore, StoresGoToAllPeersAndToTheOwnChunk) {
  using operands::chunk;
  // To one peer only; twice to one; to oneself; to another chunk; to the peer's input.
  EXPECT_THAT(store_with([](auto& steps) { steps[2].destinations.pop_back(); }),
              StartsWith("post-condition: rank 2, replica 0, output chunk 0: never written"));
  EXPECT_THAT(store_with([](auto& steps) { steps[2].destinations[2].peer = 1; }),
              StartsWith("step overlap: "));
  EXPECT_THAT(store_with([](auto& steps) { steps[2].destinations[2].peer = 0; }),
              StartsWith("peer: "));
  EXPECT_THAT(store_with([](auto& steps) { steps[2].destinations[2].span = chunk(1); }),
              testing::AnyOf(StartsWith("race: "), StartsWith("chunk agreement: ")));
  EXPECT_THAT(store_with([](auto& steps) { steps[2].destinations[2].buffer = BufferKind::kInput; }),
              StartsWith("operands: "));
}

// In place the output of a peer is its input: a chunk that somebody else still reads or writes may
// not be stored to.
TEST(TwoShotStore, APeersOwnAccessesComeBeforeTheStore) {
  using namespace operands;
  Step copy;
  copy.destinations = {output(chunk(1))};
  copy.sources = {input(chunk(1))};
  EXPECT_THAT(store_with([&](auto& steps) { steps.insert(steps.begin() + 1, copy); }),
              StartsWith("race: "));
}

}  // namespace
}  // namespace tutti
