// SPDX-License-Identifier: Apache-2.0
#include "common/split.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::perf {
namespace {

using By = Split::By;

TEST(ParseSplit, WordsAndSignsInAnyCase) {
  EXPECT_EQ(parse_split("AND 3"), (Split{By::kAnd, 3}));
  EXPECT_EQ(parse_split("&0x1f"), (Split{By::kAnd, 31}));
  EXPECT_EQ(parse_split("or 1"), (Split{By::kOr, 1}));
  EXPECT_EQ(parse_split("| 1"), (Split{By::kOr, 1}));
  EXPECT_EQ(parse_split("Mod 2"), (Split{By::kModulo, 2}));
  EXPECT_EQ(parse_split("%2"), (Split{By::kModulo, 2}));
  EXPECT_EQ(parse_split("DIV 4"), (Split{By::kDivide, 4}));
  EXPECT_EQ(parse_split("/4"), (Split{By::kDivide, 4}));
}

TEST(ParseSplit, AnythingElseIsRefused) {
  for (const char* text :
       {"", "3", "AND", "AND x", "XOR 3", "MOD 0", "/0", "MOD -1", "OR 1 2", "OR 2147483648"})
    EXPECT_FALSE(parse_split(text)) << text;
}

TEST(ParseSplitMask, IsHexadecimal) {
  EXPECT_EQ(parse_split_mask("10"), (Split{By::kAnd, 16}));
  EXPECT_EQ(parse_split_mask("0x7"), (Split{By::kAnd, 7}));
  for (const char* text : {"", "0x", "g", "-1", "80000000"})
    EXPECT_FALSE(parse_split_mask(text)) << text;
}

TEST(SplitColor, OfEachProcess) {
  const auto colors = [](Split split) {
    std::vector<int> of_process;
    for (int process = 0; process < 6; ++process) of_process.push_back(split.color(process));
    return of_process;
  };
  EXPECT_EQ(colors({By::kAnd, 1}), (std::vector{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(colors({By::kOr, 1}), (std::vector{1, 1, 3, 3, 5, 5}));
  EXPECT_EQ(colors({By::kModulo, 3}), (std::vector{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(colors({By::kDivide, 4}), (std::vector{0, 0, 0, 0, 1, 1}));
}

}  // namespace
}  // namespace tutti::perf
