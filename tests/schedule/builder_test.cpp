// SPDX-License-Identifier: Apache-2.0
#include "schedule/builder.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using namespace operands;

TEST(Builder, KeepsOperandsInTheOrderGiven) {
  LaneBuilder lane("up");
  lane.step()
      .to(send(3, 1, chunk(2)))
      .to(output(chunk(2)))
      .from(recv(4, 1, chunk(2)))
      .from(input(chunk(2)))
      .finish();
  const RankProgram program = assemble({lane});
  ASSERT_EQ(program.lanes.size(), 1U);
  EXPECT_EQ(program.lanes[0].name, "up");
  ASSERT_EQ(program.lanes[0].steps.size(), 1U);
  const Step& step = program.lanes[0].steps[0];
  const Span two{.first = 2};
  const Step expected{.destinations = {{OperandKind::kSend, BufferKind::kInput, 3, 1, two},
                                       {OperandKind::kLocal, BufferKind::kOutput, kNoRank, 0, two}},
                      .sources = {{OperandKind::kRecv, BufferKind::kInput, 4, 1, two},
                                  {OperandKind::kLocal, BufferKind::kInput, kNoRank, 0, two}},
                      .waits = {},
                      .finish = true};
  EXPECT_EQ(step, expected);
}

TEST(Builder, DropsEmptyLanesAndRenumbersWaits) {
  LaneBuilder first("first"), empty("empty"), last("last");
  first.step().to(output(chunk(0))).from(input(chunk(0))).after(2, 0, 1);
  last.step().to(output(chunk(1))).from(input(chunk(1))).after(0, 0);
  const RankProgram program = assemble({first, empty, last});
  ASSERT_EQ(program.lanes.size(), 2U);
  EXPECT_EQ(program.lanes[1].name, "last");
  EXPECT_EQ(program.lanes[0].steps[0].waits, (std::vector<Wait>{{1, 0, 1}}));
  EXPECT_EQ(program.lanes[1].steps[0].waits, (std::vector<Wait>{{0, 0, 0}}));
}

TEST(Builder, CopyAloneCopiesEveryChunkOnceAndFinishes) {
  const RankProgram program = copy_alone({.collective = Collective::kAllReduce}, 5);
  ASSERT_EQ(program.lanes.size(), 1U);
  ASSERT_EQ(program.lanes[0].steps.size(), 1U);
  const Step& step = program.lanes[0].steps[0];
  EXPECT_TRUE(step.finish);
  EXPECT_EQ(step.destinations, (std::vector<Operand>{output(chunks(0, 5))}));
  EXPECT_EQ(step.sources, (std::vector<Operand>{input(chunks(0, 5))}));
}

TEST(Span, NamesChunksInOrderModuloTheirNumber) {
  const Span span{.first = 5, .run = 2, .stride = 3, .repetitions = 2};
  ASSERT_EQ(span.count(), 4U);
  const std::uint32_t expected[] = {5, 6, 1, 2};  // 5, 6, 8, 9 modulo 7
  for (std::uint32_t k = 0; k < 4; ++k) EXPECT_EQ(span.at(k, 7), expected[k]) << k;
}

}  // namespace
}  // namespace tutti
