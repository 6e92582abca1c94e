// SPDX-License-Identifier: Apache-2.0
// Composition: where the chunks of a part land in the grid, and which waits order the parts.
#include "algorithms/compose.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "counts.hpp"
#include "samples.hpp"
#include "schedule/builder.hpp"

namespace tutti {
namespace {

using namespace operands;

Placement columns_of(std::uint32_t chunks) {
  return {.chunks = chunks, .rank_of = [](Rank rank) { return rank; }, .name = ""};
}
Placement rows_of(std::uint32_t first_column, std::uint32_t width) {
  return {.axis = Placement::Axis::kRows,
          .first_column = first_column,
          .width = width,
          .rank_of = [](Rank rank) { return rank; },
          .name = ""};
}

bool is_receive(const Operand& operand) { return operand.kind == OperandKind::kRecv; }

RankProgram copies(const Span& span) {
  LaneBuilder lane("copy");
  lane.step().to(output(span)).from(input(span));
  return assemble({lane});
}

// The chunks of the whole on which `span` of a part lies.
std::vector<std::uint32_t> placed(Grid grid, const Placement& at, const Span& span) {
  Composition whole(grid);
  whole.add(copies(span), at);
  const Span found = whole.take().lanes.at(0).steps.at(0).sources.at(0).span;
  std::vector<std::uint32_t> chunks;
  for (std::uint32_t k = 0; k < found.count(); ++k)
    chunks.push_back(found.at(k, grid.rows * grid.columns));
  return chunks;
}

TEST(Composition, ColumnsAreCutNearlyEqually) {
  // Two chunks on 5 columns: 0..1 and 2..4, on both rows.
  using Chunks = std::vector<std::uint32_t>;
  EXPECT_EQ(placed({2, 5}, columns_of(2), chunk(0)), (Chunks{0, 1, 5, 6}));
  EXPECT_EQ(placed({2, 5}, columns_of(2), chunk(1)), (Chunks{2, 3, 4, 7, 8, 9}));
  EXPECT_EQ(placed({2, 5}, columns_of(2), chunks(0, 2)), (Chunks{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(placed({1, 3}, columns_of(3), chunks(2, 2)), (Chunks{2, 0}));  // around the end
}

// Every run of chunks, also around the end, covers the columns of its chunks in all rows, once.
TEST(Composition, ColumnsOfEveryRunAreThoseOfItsChunks) {
  for (std::uint32_t rows = 1; rows <= 4; ++rows)
    for (std::uint32_t columns = 1; columns <= 7; ++columns)
      for (std::uint32_t chunks = 1; chunks <= columns; ++chunks)
        for (std::uint32_t first = 0; first < chunks; ++first)
          for (std::uint32_t run = 1; run <= chunks; ++run) {
            std::vector<std::uint32_t> expected;
            for (std::uint32_t k = first; k < first + run; ++k)
              for (std::uint32_t c = k % chunks * columns / chunks;
                   c < (k % chunks + 1) * columns / chunks; ++c)
                for (std::uint32_t row = 0; row < rows; ++row)
                  expected.push_back(row * columns + c);
            auto found = placed({rows, columns}, columns_of(chunks), operands::chunks(first, run));
            std::ranges::sort(found);
            std::ranges::sort(expected);
            ASSERT_EQ(found, expected) << fmt::format("{} rows, {} columns, {} chunks, {}+{}", rows,
                                                      columns, chunks, first, run);
          }
}

// In order, as one message names them: runs, also around the end, and strided spans.
TEST(Composition, RowsOfEverySpanAreThoseOfItsChunks) {
  for (std::uint32_t rows = 1; rows <= 6; ++rows)
    for (std::uint32_t columns = 1; columns <= 4; ++columns)
      for (std::uint32_t column = 0; column < columns; ++column)
        for (std::uint32_t width = 1; column + width <= columns; ++width)
          for (std::uint32_t first = 0; first < rows; ++first)
            for (std::uint32_t count = 1; count <= rows; ++count)
              for (const Span span : {chunks(first, count),
                                      Span{.first = first, .stride = 5, .repetitions = count}}) {
                std::vector<std::uint32_t> expected;
                for (std::uint32_t k = 0; k < count; ++k)
                  for (std::uint32_t c = column; c < column + width; ++c)
                    expected.push_back(span.at(k, rows) * columns + c);
                ASSERT_EQ(placed({rows, columns}, rows_of(column, width), span), expected);
              }
}

// A part of one row, and one of whole rows whose spans have both a run and a stride.
TEST(Composition, PartsLieOnOneRowOrOnWholeRows) {
  Placement row = columns_of(3);
  row.axis = Placement::Axis::kRow;
  row.row = 2;
  using Chunks = std::vector<std::uint32_t>;
  EXPECT_EQ(placed({4, 3}, row, chunk(1)), (Chunks{7}));
  EXPECT_EQ(placed({4, 3}, row, chunks(0, 3)), (Chunks{6, 7, 8}));
  const Span strided{.first = 1, .run = 2, .stride = 4, .repetitions = 2};  // rows 1 2 5 6
  EXPECT_EQ(placed({8, 2}, rows_of(0, 2), strided), (Chunks{2, 3, 4, 5, 10, 11, 12, 13}));
}

// Where a part's output or sums lie in scratch, their slots are those of a tile of the grid.
TEST(Composition, ATileHoldsItsPartOfTheGridRowByRow) {
  LaneBuilder lane("lane");
  lane.step().to(scratch(chunk(0))).from(input(chunk(1))).from(recv(1, 0, chunk(1)));
  lane.step().to(output(chunk(1))).from(scratch(chunk(0))).from(recv(1, 0, chunk(1)));
  const RankProgram part = assemble({lane});
  const auto slots = [&](const Placement& at) {
    Composition whole({3, 2}, 6);
    whole.add(part, at);
    const std::vector<Step> steps = whole.take().lanes.at(0).steps;
    return std::vector<Operand>{steps[0].destinations[0], steps[1].destinations[0]};
  };
  Placement at = columns_of(2);
  at.output = at.sums = BufferKind::kScratch;
  at.tile = {.columns = 2};  // the whole grid: column 1 of each row
  const Operand column = scratch({.first = 1, .run = 1, .stride = 2, .repetitions = 3});
  EXPECT_EQ(slots(at), (std::vector<Operand>{column, column}));
  at.tile = {.first_column = 1, .columns = 1};  // that column alone
  EXPECT_EQ(slots(at), (std::vector<Operand>{scratch(chunks(0, 3)), scratch(chunks(0, 3))}));
  at.axis = Placement::Axis::kRow;
  at.row = 2;
  at.tile = {.first_row = 2, .columns = 2};  // a row alone
  EXPECT_EQ(slots(at), (std::vector<Operand>{scratch(chunk(1)), scratch(chunk(1))}));
  at.output = BufferKind::kOutput;
  at.axis = Placement::Axis::kRows;
  at.width = 2;
  at.own_slots = true;  // each of two chunks
  EXPECT_EQ(slots(at), (std::vector<Operand>{scratch(chunks(0, 2)), output(chunks(2, 2))}));
}

// A step that would only copy data onto itself is left out, if no wait names a step by its number.
TEST(Composition, LeavesOutWhatHasNothingToDo) {
  LaneBuilder lane("lane"), other("other");
  lane.step().to(output(chunk(0))).from(input(chunk(0)));
  lane.step().to(send(1, 0, chunk(0))).to(output(chunk(0))).from(input(chunk(0)));
  Placement at = columns_of(1);
  at.input = BufferKind::kOutput;
  Composition whole({1, 1}), numbered({1, 1});
  whole.add(assemble({lane}), at);
  const std::vector<Step> steps = whole.take().lanes.at(0).steps;
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].destinations, (std::vector<Operand>{send(1, 0, chunk(0))}));
  other.step().to(send(1, 1, chunk(0))).from(output(chunk(0))).after(0, 0);
  numbered.add(assemble({lane, other}), at);
  EXPECT_EQ(numbered.take().lanes.at(0).steps.size(), 2U);
}

TEST(Composition, RenamesRanksTagsBuffersAndLanes) {
  LaneBuilder lane("lane");
  lane.step().to(output(chunk(0))).from(input(chunk(0))).from(recv(1, 1, chunk(0))).finish();
  lane.step().to(send(2, 0, chunk(0))).from(output(chunk(0)));
  Placement at = columns_of(1);
  at.rank_of = [](Rank rank) { return 10 * rank; };
  at.input = BufferKind::kOutput;
  at.first_tag = 7;
  at.name = "part ";
  for (const bool finish : {false, true}) {
    at.finish = finish;
    Composition whole({1, 1});
    whole.add(assemble({lane}), at);
    const RankProgram program = whole.take();
    EXPECT_EQ(program.lanes[0].name, "part lane");
    const std::vector<Step>& steps = program.lanes[0].steps;
    EXPECT_EQ(steps[0].sources, (std::vector<Operand>{output(chunk(0)), recv(10, 8, chunk(0))}));
    EXPECT_EQ(steps[0].finish, finish);
    EXPECT_EQ(steps[1].destinations, (std::vector<Operand>{send(20, 7, chunk(0))}));
  }
}

TEST(Composition, WaitsForWhatTouchedTheSameChunkAndForNothingElse) {
  LaneBuilder writes0("writes 0"), writes1("writes 1");
  writes0.step().to(output(chunk(0))).from(input(chunk(0)));
  writes1.step().to(output(chunk(1))).from(input(chunk(1)));
  LaneBuilder next("next");
  next.step().to(send(1, 0, chunk(1))).from(output(chunk(1)));  // reads what lane 1 wrote
  next.step().to(output(chunk(1))).from(recv(1, 0, chunk(1)));  // lane 1 is awaited already
  next.step().to(send(1, 0, chunk(0))).from(output(chunk(0)));  // and now lane 0
  LaneBuilder last("last");
  last.step().to(output(chunk(0))).from(recv(1, 1, chunk(0)));  // after all that touched chunk 0
  LaneBuilder other("other");
  other.step().to(send(1, 2, chunk(2))).from(input(chunk(2)));  // nobody touched chunk 2
  Composition whole({1, 3});
  whole.add(assemble({writes0, writes1}), columns_of(3));
  whole.add(assemble({next}), columns_of(3));
  whole.add(assemble({last}), columns_of(3));
  whole.add(assemble({other}), columns_of(3));
  const RankProgram program = whole.take();
  using Waits = std::vector<Wait>;
  EXPECT_EQ(program.lanes[2].steps[0].waits, (Waits{{.lane = 1, .step = 0}}));
  EXPECT_EQ(program.lanes[2].steps[1].waits, Waits{});
  EXPECT_EQ(program.lanes[2].steps[2].waits, (Waits{{.lane = 0, .step = 0}}));
  EXPECT_EQ(program.lanes[3].steps[0].waits,
            (Waits{{.lane = 0, .step = 0}, {.lane = 2, .step = 2}}));
  EXPECT_EQ(program.lanes[4].steps[0].waits, Waits{});
}

// Slices share the versions of scratch: the first writer of a slot waits for the last reader of the
// slice before it there. Chunks of an output are of one slice alone.
TEST(Composition, WritersOfASlotWaitForTheReadersOfTheVersionBefore) {
  LaneBuilder writer("writer"), reader("reader");
  writer.step().to(send(1, 0, chunk(0))).from(input(chunk(0)));
  writer.step().to(output(chunk(0))).from(recv(1, 0, chunk(0)));
  writer.step().to(output(chunk(1))).from(recv(1, 0, chunk(1)));
  reader.step().to(send(1, 1, chunk(1))).from(input(chunk(1)));
  reader.step().to(send(1, 1, chunk(0))).from(input(chunk(0)));
  reader.step().to(output(chunk(0))).from(recv(1, 1, chunk(0)));
  for (const BufferKind handed : {BufferKind::kScratch, BufferKind::kOutput}) {
    Composition whole({1, 2}, 2, 3);
    Placement first = columns_of(2), second = columns_of(2);
    first.output = second.input = handed;
    first.tile = second.tile = {.columns = 2};
    whole.add(assemble({writer}), first);
    whole.add(assemble({reader}), second);
    const std::vector<Lane> lanes = whole.take().lanes;
    using Waits = std::vector<Wait>;
    const bool slots = handed == BufferKind::kScratch;
    EXPECT_EQ(lanes[0].steps[0].waits, Waits{});
    EXPECT_EQ(lanes[0].steps[1].waits,
              (slots ? Waits{{.lane = 1, .step = 1, .back = 3}} : Waits{}));
    EXPECT_EQ(lanes[0].steps[2].waits, Waits{});
    EXPECT_EQ(lanes[1].steps[0].waits, (Waits{{.lane = 0, .step = 2}}));
    EXPECT_EQ(lanes[1].steps[1].waits, Waits{}) << "the later step of that lane is awaited";
  }
}

TEST(Composition, ReadersDoNotWaitForReaders) {
  LaneBuilder first("first"), second("second");
  first.step().to(send(1, 0, chunk(0))).from(input(chunk(0)));
  second.step().to(send(1, 1, chunk(0))).from(input(chunk(0)));
  Composition whole({1, 1});
  whole.add(assemble({first}), columns_of(1));
  whole.add(assemble({second}), columns_of(1));
  EXPECT_TRUE(whole.take().lanes[1].steps[0].waits.empty());
}

// A step that takes no message is ordered after the part before by its wait alone. (Where it takes
// one, the message may have come the long way around all that it waits for.)
TEST(Composition, WithoutAWaitThatNoMessageReplacesTheVerifierFalls) {
  const std::pair<const char*, std::int32_t> cases[] = {
      {"hierarchical:groups=2x3", 6},
      {"hierarchical:inner=ring:outer=tree:groups=3+2", 5},
      {"hierarchical:form=leader:inner=ring:groups=2x3", 6},
      {"hierarchical:form=leader:inner=tree:outer=ring:groups=4+2+1", 7}};
  for (const auto& [name, ranks] : cases) {
    const Schedule schedule = samples::built(name, ranks);
    std::size_t removed = 0;
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r)
      for (std::size_t l = 0; l < schedule.ranks[r].lanes.size(); ++l) {
        Schedule broken = schedule;
        std::vector<Step>& steps = broken.ranks[r].lanes[l].steps;
        const auto waiting =
            std::ranges::find_if(steps, [](const Step& step) { return !step.waits.empty(); });
        if (waiting == steps.end()) continue;
        if (std::ranges::any_of(waiting->sources, is_receive)) continue;
        waiting->waits.clear();
        ++removed;
        EXPECT_FALSE(verify(broken))
            << name << " rank " << r << " lane " << schedule.ranks[r].lanes[l].name;
      }
    EXPECT_GE(removed, 3U) << name;
  }
}

}  // namespace
}  // namespace tutti
