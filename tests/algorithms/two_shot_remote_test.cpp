// SPDX-License-Identifier: Apache-2.0
// The formulas of two_shot's form with remote operands, and that no signal of it can be left out.
#include <gtest/gtest.h>

#include "counts.hpp"
#include "samples.hpp"
#include "schedule/verifier.hpp"

namespace tutti {
namespace {

constexpr const char* kName = "two_shot:access=remote";

std::uint64_t remote_chunks(const RankProgram& program) {
  std::uint64_t chunks = 0;
  for (const Lane& lane : program.lanes)
    for (const Step& step : lane.steps)
      for (const Operand& operand : step.sources)
        if (operand.kind == OperandKind::kRemote) chunks += operand.span.count();
  return chunks;
}

TEST(TwoShotRemote, CountsAreThoseOfTheFormula) {
  for (std::uint64_t p = 2; p <= 65; ++p) {
    SCOPED_TRACE(p);
    const Schedule schedule = samples::built(kName, static_cast<std::int32_t>(p));
    ASSERT_EQ(schedule.shape.chunks, p);
    for (const RankProgram& program : schedule.ranks) {
      const counts::RankCounts counts = counts::of(program);
      EXPECT_EQ(counts.messages, 3 * (p - 1));
      EXPECT_EQ(counts.sent_chunks, 0U);
      EXPECT_EQ(counts.reduced_chunks, p - 1);
      EXPECT_EQ(counts.finished_chunks, 1U);
      EXPECT_EQ(remote_chunks(program), 2 * (p - 1));
    }
    EXPECT_EQ(verify(schedule)->depth, 3U);
    const counts::Connections connections(schedule);
    EXPECT_EQ(schedule.shape.max_incoming, connections.max_incoming());
    EXPECT_EQ(schedule.shape.max_per_pair, connections.max_per_pair());
  }
}

TEST(TwoShotRemote, ItsHalvesAreProvedToo) {
  for (const Collective collective : {Collective::kReduceScatter, Collective::kAllGather})
    for (std::int32_t p = 1; p <= 17; ++p) {
      const auto schedule =
          build_schedule(**find_algorithm(kName), {.collective = collective, .ranks = p});
      ASSERT_TRUE(schedule) << schedule.error().message;
      const auto proof = verify(*schedule);
      EXPECT_TRUE(proof) << name_of(collective) << " " << p << ": " << proof.error().message;
    }
}

// The schedule without the `which`-th message from rank 0 to rank 1.
Schedule without_signal(int which) {
  Schedule schedule = samples::built(kName, 3);
  const auto drop = [&](std::vector<Operand>& operands, OperandKind kind, Rank peer, int& left) {
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (operands[i].kind == kind && operands[i].peer == peer && left-- == 0) {
        operands.erase(operands.begin() + static_cast<std::ptrdiff_t>(i));
        return;
      }
  };
  int sends = which, recvs = which;
  for (Step& step : schedule.ranks[0].lanes[0].steps)
    drop(step.destinations, OperandKind::kSend, 1, sends);
  for (Step& step : schedule.ranks[1].lanes[0].steps) {
    if (step.sources.size() == 1 && step.sources[0].kind == OperandKind::kRecv &&
        step.sources[0].peer == 0 && recvs == 0) {
      step.sources[0] = operands::input({.run = 0});
      --recvs;
      continue;
    }
    drop(step.sources, OperandKind::kRecv, 0, recvs);
  }
  return schedule;
}

TEST(TwoShotRemote, NoSignalCanBeLeftOut) {
  ASSERT_TRUE(verify(samples::built(kName, 3)));
  constexpr const char* kRules[] = {"remote begin: ", "race: ", "remote end: "};
  for (int which = 0; which < 3; ++which) {
    const auto proof = verify(without_signal(which));
    ASSERT_FALSE(proof) << "signal " << which;
    EXPECT_TRUE(proof.error().message.starts_with(kRules[which])) << proof.error().message;
  }
}

}  // namespace
}  // namespace tutti
