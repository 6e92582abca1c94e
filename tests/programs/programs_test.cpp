// SPDX-License-Identifier: Apache-2.0
// The parts behind the random programs: that the model and the executor find what is wrong, that
// programs are ordered as they must be, and that a failing one becomes small and can be pasted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "execute.hpp"
#include "generate.hpp"
#include "model.hpp"
#include "order.hpp"
#include "print.hpp"
#include "shrink.hpp"
#include "tests/seed.hpp"
#include "values.hpp"

namespace tutti::programs {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(ProgramValues, AreThoseOfTheTypes) {
  EXPECT_EQ(encode(tuttiFloat16, 1), 0x3c00u);
  EXPECT_EQ(encode(tuttiFloat16, -2048), 0xe800u);
  EXPECT_EQ(encode(tuttiBfloat16, 3), 0x4040u);
  EXPECT_EQ(encode(tuttiFloat8e4m3, 16), 0x58u);
  EXPECT_EQ(encode(tuttiFloat8e5m2, -1), 0xbcu);
  EXPECT_EQ(encode(tuttiFloat32, 0.5), 0x3f000000u);
  EXPECT_EQ(encode(tuttiFloat64, 1), 0x3ff0000000000000u);
  for (int type = 0; type < tuttiNumTypes; ++type) {
    const auto of = static_cast<tuttiDataType_t>(type);
    if (!is_float(of)) continue;
    const double most = std::min(exact_limit(of), 3000.0);
    for (double value = -most; value <= most; ++value) {
      EXPECT_EQ(decode(of, encode(of, value)), value) << name_of(of);
    }
  }
}

TEST(ProgramValues, IntegersWrapAndMeansRoundTowardsZero) {
  const auto of = [](tuttiDataType_t type, tuttiRedOp_t op, Elements elements) {
    return reduce(type, op, elements);
  };
  EXPECT_EQ(of(tuttiUint8, tuttiSum, {200, 100}), 44u);
  EXPECT_EQ(of(tuttiInt8, tuttiAvg, {0xff, 0xfe}), 0xffu);  // -3 / 2
  EXPECT_EQ(of(tuttiUint8, tuttiAvg, {200, 100}), 22u);
  EXPECT_EQ(of(tuttiInt32, tuttiMax, {0xffffffff, 1}), 1u);
  EXPECT_EQ(of(tuttiUint32, tuttiMin, {0xffffffff, 1}), 1u);
  EXPECT_EQ(of(tuttiInt64, tuttiProd, {~0ull, 5}), ~0ull - 4);
  EXPECT_EQ(of(tuttiUint8, tuttiLogicalXor, {4, 4}), 0u);
  EXPECT_EQ(of(tuttiUint8, tuttiLogicalAnd, {7}), 7u);
  EXPECT_EQ(of(tuttiFloat32, tuttiAvg, {encode(tuttiFloat32, 1), encode(tuttiFloat32, 2)}),
            encode(tuttiFloat32, 1.5));
}

// The first elements of buffer 1 on each rank after one step on filled buffers.
std::vector<std::vector<std::int64_t>> after(int ranks, const Step& step, std::size_t count) {
  const Program program{ranks, 1, {tuttiInt64, tuttiInt64}, {step}};
  // Element i of the input at rank r becomes this.
  const auto name = [&](std::uint64_t bits) -> std::int64_t {
    for (int rank = 0; rank < ranks; ++rank)
      for (int i = 0; i < 20; ++i)
        if (fill_value(tuttiInt64, 0, rank, static_cast<std::size_t>(i)) == bits)
          return 100 * rank + i;
    return -1;
  };
  std::vector<std::vector<std::int64_t>> found;
  for (const std::vector<Elements>& buffers : model(program).buffers) {
    found.emplace_back();
    for (std::size_t i = 0; i < count; ++i) found.back().push_back(name(buffers[1][i]));
  }
  return found;
}

// From the text of tutti.h, by hand.
TEST(ProgramModel, SaysWhereEachElementGoes) {
  const auto step = [](Kind kind) { return Step{.kind = kind, .out = 1, .count = 2, .root = 1}; };
  EXPECT_THAT(after(2, step(Kind::kAllGather), 4), Each(ElementsAre(0, 1, 100, 101)));
  EXPECT_THAT(after(2, step(Kind::kAllToAll), 4),
              ElementsAre(ElementsAre(0, 1, 100, 101), ElementsAre(2, 3, 102, 103)));
  EXPECT_THAT(after(2, step(Kind::kBroadcast), 3), Each(ElementsAre(100, 101, -1)));
  EXPECT_THAT(after(2, step(Kind::kGather), 4), ElementsAre(Each(-1), ElementsAre(0, 1, 100, 101)));
  EXPECT_THAT(after(2, step(Kind::kScatter), 3),
              ElementsAre(ElementsAre(100, 101, -1), ElementsAre(102, 103, -1)));
  Step transfer = step(Kind::kTransfer);
  transfer.peer = 2;
  EXPECT_THAT(after(3, transfer, 2), ElementsAre(Each(-1), Each(-1), ElementsAre(100, 101)));
}

TEST(ProgramOrder, EqualPartsOfTheRanks) {
  const Parts all{{0, 1, 2, 3, 4}};
  EXPECT_THAT(divide(all, kOddEven), ElementsAre(ElementsAre(0, 2, 4), ElementsAre(1, 3)));
  EXPECT_THAT(divide(divide(all, kOddEven), kReversed),
              ElementsAre(ElementsAre(4, 2, 0), ElementsAre(3, 1)));
  EXPECT_THAT(divide(all, kWithoutLast), ElementsAre(ElementsAre(0, 1, 2, 3)));
}

std::vector<Kind> kinds_of(const Program& program) {
  std::vector<Kind> kinds;
  for (const Step& step : program.steps) kinds.push_back(step.kind);
  return kinds;
}

TEST(ProgramOrder, StepsThatShareABufferAreOrderedAndOthersAreNot) {
  const Step first{.kind = Kind::kAdd, .stream = 0, .out = 0};
  const Step same{.kind = Kind::kAllReduce, .stream = 1, .in = 0, .out = 1, .count = 1};
  const Step other{.kind = Kind::kAllReduce, .stream = 1, .in = 1, .out = 2, .count = 1};
  Program program{2, 2, {tuttiInt32, tuttiInt32, tuttiInt32}, {first, same}};
  ASSERT_TRUE(complete(program));
  EXPECT_THAT(kinds_of(*complete(program)),
              ElementsAre(Kind::kAdd, Kind::kRecord, Kind::kWait, Kind::kAllReduce));
  program.steps = {first, other};
  EXPECT_THAT(kinds_of(*complete(program)), ElementsAre(Kind::kAdd, Kind::kAllReduce));
  // The calling thread waits before it touches the buffer itself.
  program.steps = {first, first};
  program.steps[1].stream = kNoStream;
  EXPECT_THAT(complete(program)->steps, SizeIs(::testing::Gt(2u)));
  // Again: what Order put in is put in once.
  EXPECT_EQ(print(*complete(*complete(program))), print(*complete(program)));
}

// Also where a call that is not in place has both its places in one buffer.
TEST(ProgramOrder, WhatWouldRoundIsFilledFirst) {
  const Program program{.ranks = 3,
                        .streams = 1,
                        .buffers = {tuttiBfloat16, tuttiBfloat16},
                        .steps = {{.kind = Kind::kAllReduce, .out = 1, .count = 233},
                                  {.kind = Kind::kReduceScatter,
                                   .in = 1,
                                   .out = 1,
                                   .in_first = 190,
                                   .count = 40,
                                   .op = tuttiProd}}};
  EXPECT_THAT(kinds_of(*complete(program)),
              ElementsAre(Kind::kAllReduce, Kind::kFill, Kind::kReduceScatter));
}

TEST(ProgramOrder, WrongStepsAreRefused) {
  const Step call{.kind = Kind::kAllReduce, .in = 0, .out = 1, .count = 5};
  Program program{2, 1, {tuttiInt32, tuttiInt32, tuttiFloat32}, {call}};
  EXPECT_TRUE(complete(program));
  const auto refuses = [&](auto change) {
    Program wrong = program;
    change(wrong);
    return !complete(wrong);
  };
  EXPECT_TRUE(refuses([](Program& p) { p.steps[0].comm = 1; }));
  EXPECT_TRUE(refuses([](Program& p) { p.steps[0].out = 2; }));
  EXPECT_TRUE(refuses([](Program& p) { p.steps[0].out = 0, p.steps[0].out_first = 1; }));
  EXPECT_TRUE(refuses([](Program& p) {
    p.steps[0].group = 1;
    p.steps.push_back(p.steps[0]);  // the same buffer twice in a group
  }));
  EXPECT_TRUE(refuses([](Program& p) {
    p.steps[0].in = p.steps[0].out = 2;
    p.steps[0].op = tuttiBitAnd;
  }));
}

// ---- Deliberately wrong ------------------------------------------------------------------------

TEST(ProgramExecutor, FindsAWrongByte) {
  const Program program{.ranks = 3,
                        .streams = 1,
                        .buffers = {tuttiFloat16, tuttiFloat16},
                        .steps = {{.kind = Kind::kAllReduce, .out = 1, .count = 9}}};
  EXPECT_EQ(check(program), "");
  ExecuteOptions wrong;
  wrong.after_step = [](int rank, std::size_t, std::vector<std::vector<std::byte>>& buffers) {
    if (rank == 2) buffers[1][2 * 8] ^= std::byte{1};
  };
  EXPECT_THAT(check(program, wrong), HasSubstr("tuttiFloat16, rank 2, element 8"));
  wrong.after_step = [](int rank, std::size_t, std::vector<std::vector<std::byte>>& buffers) {
    if (rank == 0) buffers[1].back() ^= std::byte{1};  // behind the result
  };
  EXPECT_THAT(check(program, wrong), HasSubstr("rank 0"));
}

TEST(ProgramExecutor, TellsAFailedCallAndEndsTheOthers) {
  // The buffers overlap without being in place, which Order refuses and the library too.
  const Program program{
      .ranks = 3,
      .streams = 2,
      .buffers = {tuttiInt32, tuttiInt32},
      .steps = {{.kind = Kind::kAllReduce, .stream = 1, .out_first = 1, .count = 4},
                {.kind = Kind::kBarrier}}};
  EXPECT_THAT(check(program), AllOf(HasSubstr("step 0 (kAllReduce)"), HasSubstr("overlap")));
}

// An executor that is wrong where `is_hit` says so, without the library.
template <class IsHit>
Check wrong_where(const IsHit& is_hit) {
  return [&](const Program& program) -> std::string {
    std::vector<Parts> parts(kMostComms);
    for (int rank = 0; rank < program.ranks; ++rank)
      parts[0].resize(1), parts[0][0].push_back(rank);
    for (const Step& step : program.steps) {
      const auto comm = static_cast<std::size_t>(step.comm);
      if (step.kind == Kind::kSplit)
        parts[static_cast<std::size_t>(step.made)] =
            divide(parts[comm], static_cast<Division>(step.peer));
      if (is_call(step.kind) && is_hit(program, step, parts[comm])) return "wrong";
    }
    return "";
  };
}

// A random program that the check calls wrong.
Program failing(std::mt19937& random, const Check& check) {
  for (;;) {
    const Program program = generate(static_cast<std::uint32_t>(random()), {.most_steps = 60});
    if (!check(program).empty()) return program;
  }
}

std::size_t drawn_steps(const Program& program) {
  return static_cast<std::size_t>(
      std::ranges::count(program.steps, false, [](const Step& step) { return step.derived; }));
}

TEST(ProgramShrinker, LeavesTheCallThatIsWrong) {
  std::mt19937 random(draw_seed());
  const auto hit = [](const Program&, const Step& step, const Parts&) {
    return step.kind == Kind::kGather && step.count >= 5;
  };
  const Check check = wrong_where(hit);
  for (int i = 0; i < 20; ++i) {
    const Program program = failing(random, check);
    const Shrunk small = shrink(program, "wrong", check);
    ASSERT_EQ(check(small.program), "wrong");
    EXPECT_EQ(small.failure, "wrong");
    EXPECT_EQ(drawn_steps(small.program), 1u) << print(small.program);
    EXPECT_EQ(small.program.ranks, 1);
    EXPECT_EQ(small.program.steps.back().count, 5u);
    EXPECT_EQ(small.program.steps.back().stream, kNoStream);
    EXPECT_THAT(small.program.buffers, Each(tuttiInt32));
  }
}

TEST(ProgramShrinker, KeepsWhatTheFaultNeeds) {
  std::mt19937 random(draw_seed());
  // In a communicator made by a split, in place at rank 1, on a stream, of floats.
  const auto hit = [](const Program& program, const Step& step, const Parts&) {
    return step.comm != 0 && reduces(step.kind) && (step.in_place & 2u) != 0 && program.ranks > 1 &&
           step.stream != kNoStream && is_float(program.buffers[static_cast<std::size_t>(step.in)]);
  };
  const Check check = wrong_where(hit);
  for (int i = 0; i < 5; ++i) {
    const Program program = failing(random, check);
    const Shrunk small = shrink(program, "wrong", check);
    ASSERT_EQ(check(small.program), "wrong");
    EXPECT_EQ(drawn_steps(small.program), 2u) << print(small.program);  // the split and the call
    EXPECT_EQ(small.program.ranks, 2);
  }
}

TEST(ProgramShrinker, WorksWithTheLibraryToo) {
  std::mt19937 random(draw_seed());
  // Every all-gather of three elements or more leaves a wrong byte on rank 1.
  const Check wrong = [](const Program& program) {
    ExecuteOptions options;
    options.after_step = [&](int rank, std::size_t i, std::vector<std::vector<std::byte>>& data) {
      const Step& step = program.steps[i];
      if (step.kind == Kind::kAllGather && step.count >= 3 && step.stream == kNoStream &&
          step.group == 0 && rank == 1 && program.ranks > 1)
        data[static_cast<std::size_t>(step.out)].back() ^= std::byte{1};
    };
    return check(program, options);
  };
  const Program program = failing(random, wrong);
  const Shrunk small = shrink(program, wrong(program), wrong);
  EXPECT_NE(wrong(small.program), "");
  EXPECT_EQ(drawn_steps(small.program), 1u) << print(small.program);
  EXPECT_EQ(small.program.steps.back().count, 3u);
  EXPECT_EQ(small.program.ranks, 2);
  EXPECT_EQ(check(small.program), "");  // the library is right
}

// ---- Printed -----------------------------------------------------------------------------------

std::string without_spaces(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

// The text that the compiler read is the text that is printed for what it made of it.
#define PASTED(...)                  \
  const Program program __VA_ARGS__; \
  const std::string text = #__VA_ARGS__
TEST(ProgramPrinter, PrintsWhatTheCompilerReads) {
  PASTED(
      {.ranks = 3,
       .streams = 2,
       .buffers = {tuttiFloat16, tuttiFloat16},
       .steps = {
           {.kind = Kind::kSplit, .peer = 2, .made = 1},
           {.kind = Kind::kAllToAllV,
            .comm = 1,
            .stream = 1,
            .stagger = 1,
            .group = 7,
            .out = 1,
            .in_first = 3,
            .out_first = 4,
            .count = 5,
            .salt = 4000000000},
           {.kind = Kind::kReduce, .in = 1, .count = 6, .op = tuttiMax, .root = 2, .in_place = 5},
           {.kind = Kind::kRecord, .stream = 0, .event = 3, .derived = true}}});
  EXPECT_EQ(without_spaces(print(program)), without_spaces(text));
  EXPECT_THAT(
      print_test(program, "what\nhappened"),
      AllOf(HasSubstr("// what happened\nTEST("), HasSubstr("EXPECT_EQ(check(program), \"\");")));
}

TEST(ProgramPrinter, EqualSeedsGiveEqualPrograms) {
  const std::uint32_t seed = draw_seed();
  EXPECT_EQ(print(generate(seed)), print(generate(seed)));
  EXPECT_NE(print(generate(seed)), print(generate(seed + 1)));
}

}  // namespace
}  // namespace tutti::programs
