// SPDX-License-Identifier: Apache-2.0
// Programs that failed once, as random_programs_test printed them.
#include <gtest/gtest.h>

#include "execute.hpp"
#include "program.hpp"

namespace tutti::programs {
namespace {

TEST(PastedPrograms, AnEventPassesABufferOnToAnotherStream) {
  const Program program{.ranks = 2,
                        .streams = 2,
                        .buffers = {tuttiInt32},
                        .steps = {{.kind = Kind::kAdd, .stream = 0},
                                  {.kind = Kind::kRecord, .stream = 0},
                                  {.kind = Kind::kWait, .stream = 1},
                                  {.kind = Kind::kBcast, .stream = 1, .count = 100}}};
  EXPECT_EQ(check(program), "");
}

}  // namespace
}  // namespace tutti::programs
