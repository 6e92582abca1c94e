// SPDX-License-Identifier: Apache-2.0
// Small calls of all kinds in one order on all ranks, each again and again between the others, so
// that they repeat.
#pragma once

#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include "calls.hpp"

namespace tutti::test {

// Each is checked. The seed is equal on all ranks.
inline void make_mixed_calls(tuttiComm_t comm, int rank, int ranks, unsigned seed, int calls) {
  using enum Collective;
  std::mt19937 random(seed);
  std::vector<CallCase> shapes;
  for (const Collective collective :
       {kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kGather, kScatter, kAllToAll})
    for (const std::size_t count : {1, 2, 17, 130, 700, 2000})
      shapes.push_back({.collective = collective,
                        .count = count,
                        .root = static_cast<int>(random() % static_cast<unsigned>(ranks))});
  std::shuffle(shapes.begin(), shapes.end(), random);
  for (int i = 0; i < calls; ++i) {
    // Of a few, which change.
    CallCase one = shapes[(random() % 5 + static_cast<std::size_t>(i) / 50) % shapes.size()];
    one.in_place = one.collective != kAllToAll && random() % 3 == 0;
    one.salt = i;
    ASSERT_EQ(check_call(comm, rank, ranks, one), "")
        << "call " << i << ", " << ranks << " ranks, seed " << seed;
  }
}

}  // namespace tutti::test
