// SPDX-License-Identifier: Apache-2.0
#include "base/collective.hpp"

#include <gtest/gtest.h>

#include <set>

namespace tutti {
namespace {

TEST(Collectives, AreFoundByTheirNames) {
  std::set<std::string_view> names;
  for (std::size_t i = 1; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    EXPECT_TRUE(names.insert(name_of(collective)).second) << name_of(collective);
    EXPECT_EQ(parse_collective(name_of(collective)), collective);
  }
  EXPECT_EQ(name_of(Collective::kAllReduce), "all_reduce");
  EXPECT_EQ(name_of(Collective::kSend), "send");
  EXPECT_EQ(parse_collective("none"), std::nullopt);
  EXPECT_EQ(parse_collective("All_Reduce"), std::nullopt);
}

// NCCL's interface: recvcount of reduce-scatter and sendcount of all-gather are of one block.
TEST(Collectives, BuffersHoldWhatTheInterfaceSays) {
  struct Case {
    Collective collective;
    std::uint64_t input, output, first_input, first_output;  // of rank 2 of 4, count 100
  };
  for (const Case& c :
       {Case{Collective::kAllReduce, 100, 100, 0, 0},
        Case{Collective::kAllGather, 100, 400, 200, 0},
        Case{Collective::kReduceScatter, 400, 100, 0, 200},
        Case{Collective::kAllToAll, 400, 400, 0, 0}, Case{Collective::kGather, 100, 400, 200, 0},
        Case{Collective::kScatter, 400, 100, 0, 200}}) {
    const CollectiveInfo& info = info_of(c.collective);
    EXPECT_EQ(info.elements(info.input, 100, 4), c.input) << info.name;
    EXPECT_EQ(info.elements(info.output, 100, 4), c.output) << info.name;
    EXPECT_EQ(info.first_element(info.input, 100, 2), c.first_input) << info.name;
    EXPECT_EQ(info.first_element(info.output, 100, 2), c.first_output) << info.name;
  }
}

TEST(Collectives, OnlyTheRootHasSomeBuffers) {
  const auto has = [](Collective collective, bool output, Rank rank) {
    const CollectiveInfo& info = info_of(collective);
    return info.has(output ? info.output : info.input, rank, /*root=*/1);
  };
  EXPECT_FALSE(has(Collective::kReduce, true, 0));
  EXPECT_TRUE(has(Collective::kReduce, true, 1));
  EXPECT_TRUE(has(Collective::kReduce, false, 0));
  EXPECT_FALSE(has(Collective::kBroadcast, false, 0));
  EXPECT_TRUE(has(Collective::kBroadcast, false, 1));
  EXPECT_TRUE(has(Collective::kBroadcast, true, 0));
  EXPECT_TRUE(has(Collective::kAllReduce, false, 0));
}

// doc/PERFORMANCE.md of nccl-tests.
TEST(Collectives, BusBandwidthFactors) {
  EXPECT_DOUBLE_EQ(info_of(Collective::kAllReduce).bus_factor(4), 1.5);
  EXPECT_DOUBLE_EQ(info_of(Collective::kAllGather).bus_factor(4), 0.75);
  EXPECT_DOUBLE_EQ(info_of(Collective::kReduceScatter).bus_factor(4), 0.75);
  EXPECT_DOUBLE_EQ(info_of(Collective::kBroadcast).bus_factor(4), 1);
  EXPECT_DOUBLE_EQ(info_of(Collective::kReduce).bus_factor(4), 1);
}

}  // namespace
}  // namespace tutti
