// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "samples.hpp"
#include "schedule/passes.hpp"
#include "schedule/print.hpp"

namespace tutti {
namespace {

TEST(PrintText, RingOfTwoReadsAsWritten) {
  EXPECT_EQ(to_text(samples::built("ring", 2)),
            "# ring all_reduce: ranks 2, chunks 2, tags 1; connections into a rank 1, of a pair 1\n"
            "r0.ring.0: send(1,t0) <- input[0]\n"
            "r0.ring.1: output[1] + send(1,t0) <- reduce(recv(1,t0), input[1])  finish\n"
            "r0.ring.2: output[0] <- recv(1,t0)\n"
            "r1.ring.0: send(0,t0) <- input[1]\n"
            "r1.ring.1: output[0] + send(0,t0) <- reduce(recv(0,t0), input[0])  finish\n"
            "r1.ring.2: output[1] <- recv(0,t0)\n");
}

TEST(PrintText, OneRankIsItsPartOfTheWhole) {
  const Schedule schedule = replicate(samples::built("tree", 6), 2);
  const std::string whole = to_text(schedule);
  std::string joined;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    const std::string one = to_text(schedule.shape, static_cast<Rank>(r), schedule.ranks[r]);
    const std::size_t header = one.find('\n') + 1;
    if (r == 0) joined = one.substr(0, header);
    joined += one.substr(header);
  }
  EXPECT_EQ(joined, whole);
}

TEST(PrintText, ShowsSpansWaitsScratchAndRemote) {
  using namespace operands;
  ScheduleShape shape{.algorithm = "made",
                      .collective = Collective::kAllReduce,
                      .ranks = 2,
                      .chunks = 8,
                      .scratch_chunks = 2};
  LaneBuilder a("a"), b("b");
  a.step().to(send(1, 0, chunks(2, 3))).from(recv(1, 0, chunks(2, 3))).after(1, 0);
  a.step().to(scratch(chunk(1))).from(remote(1, BufferKind::kInput, {1, 1, 2, 4})).after(1, 0, 2);
  b.step().to(send(1, 1, chunks(0, 0))).from(input(chunks(0, 0)));
  EXPECT_EQ(
      to_text(shape, 0, assemble({a, b})),
      "# made all_reduce: ranks 2, chunks 8, tags 1, scratch 2 x 1 versions; connections into a "
      "rank 0, of a pair 1\n"
      "r0.a.0: send(1,t0)[2..4] <- recv(1,t0)[2..4]  after b.0\n"
      "r0.a.1: scratch[1] <- remote(1,input)[1 +2x3]  after b.0 of 2 slices before\n"
      "r0.b.0: send(1,t1) <- input[]\n");
}

TEST(PrintText, HasALineForEveryStep) {
  for (const Algorithm* algorithm : all_algorithms()) {
    const Schedule schedule = samples::built(algorithm->name, 7);
    std::size_t steps = 1;
    for (const RankProgram& program : schedule.ranks)
      for (const Lane& lane : program.lanes) steps += lane.steps.size();
    const std::string text = to_text(schedule);
    EXPECT_EQ(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')), steps);
  }
}

}  // namespace
}  // namespace tutti
