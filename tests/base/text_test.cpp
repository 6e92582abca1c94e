// SPDX-License-Identifier: Apache-2.0
// Text of others, made fit for a message.
#include "base/text.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Printable, LeavesNothingForATerminalToObey) {
  using namespace std::string_literals;
  EXPECT_EQ(printable("node7:7000"), "node7:7000");
  EXPECT_EQ(printable("a\nb\x1b[2J\x7f\0"s), "a?b?[2J??");
  EXPECT_EQ(printable("M\xc3\xbcnchen"), "M\xc3\xbcnchen");
  EXPECT_EQ(printable("\r\n"), "??");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, HasABound) {
  EXPECT_EQ(printable("abcdef", 3), "abc");
  EXPECT_EQ(printable(std::string(1000, 'x')).size(), 256u);
}

}  // namespace
}  // namespace tutti
