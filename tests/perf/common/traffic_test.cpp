// SPDX-License-Identifier: Apache-2.0
#include "common/traffic.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace tutti::perf {
namespace {

TEST(Traffic, BlocksGrowWithTheDistance) {
  EXPECT_EQ(block_bytes(0, 0, 4, 6000, 1), 0u);
  EXPECT_EQ(block_bytes(0, 1, 4, 6000, 1), 992u);  // 1000, in multiples of 16
  EXPECT_EQ(block_bytes(0, 3, 4, 6000, 1), 2992u);
  EXPECT_EQ(block_bytes(3, 0, 4, 6000, 1), 992u);
  EXPECT_EQ(block_bytes(2, 1, 4, 6000, 1), 2992u);
  EXPECT_EQ(block_bytes(0, 0, 4, 6400, 0), 1600u);
  EXPECT_EQ(block_bytes(0, 3, 4, 6400, 0), 1600u);
  EXPECT_EQ(block_bytes(0, 0, 1, 100, 1), 96u);
}

TEST(Traffic, BothEndsOfABlockAgreeAndEveryRankSendsEquallyMuch) {
  for (const int ranks : {1, 2, 3, 8})
    for (const double spread : {0.0, 0.3, 1.0})
      for (const std::size_t element : {1u, 2u, 8u}) {
        const std::uint64_t total = 10'000;
        std::vector<PeerBlocks> all;
        for (int rank = 0; rank < ranks; ++rank)
          all.push_back(peer_blocks(rank, ranks, total, spread, element));
        for (std::size_t i = 0; i < all.size(); ++i) {
          EXPECT_EQ(all[i].sent(), all[0].sent());
          EXPECT_LE(all[i].sent() * element, total);
          const auto& received = all[i].receive_counts;
          EXPECT_EQ(std::accumulate(received.begin(), received.end(), std::size_t{0}),
                    all[0].sent());
          for (std::size_t j = 0; j < all.size(); ++j) {
            EXPECT_EQ(received[j], all[j].send_counts[i]);
            EXPECT_EQ(all[i].origins[j], all[j].send_offsets[i]);
          }
        }
      }
}

}  // namespace
}  // namespace tutti::perf
