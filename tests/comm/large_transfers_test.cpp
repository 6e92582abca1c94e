// SPDX-License-Identifier: Apache-2.0
// Receives that outgrow the cache are stored around it, the rank's own block too, exactly at any
// size and alignment; what is received where something is sent from is not.
#include <gtest/gtest.h>

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "repeating_member.hpp"

namespace tutti::test {
namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::size_t kOdd = 1;  // alignment of nothing
constexpr std::uint64_t kLarge = 200'001;

Call transfer(Collective direction, std::uint8_t* at, std::size_t count, Rank peer) {
  const bool sends = direction == Collective::kSend;
  return {.collective = direction,
          .input = sends ? at : nullptr,
          .output = sends ? nullptr : at,
          .count = count,
          .type = DataType::kUint8,
          .root = peer};
}

// An exchange of blocks with itself and the peer; what of it was stored around the cache.
std::uint64_t exchange(Member& member, Rank rank, std::size_t count, bool own_in_place) {
  Communicator& communicator = *member.communicator;
  const auto value = [&](Rank from, Rank to, std::size_t i) {
    return static_cast<std::uint8_t>(100 * from + 10 * to + static_cast<int>(i % 251));
  };
  Bytes sent(kOdd + 2 * count), received(kOdd + 2 * count + 1, 7);
  std::vector<HeldCall> calls;
  for (Rank peer = 0; peer < 2; ++peer) {
    const std::size_t begin = kOdd + static_cast<std::size_t>(peer) * count;
    for (std::size_t i = 0; i < count; ++i) sent[begin + i] = value(rank, peer, i);
    Bytes& into = own_in_place && peer == rank ? sent : received;
    calls.push_back({&communicator, transfer(Collective::kRecv, &into[begin], count, peer), {}});
    calls.push_back({&communicator, transfer(Collective::kSend, &sent[begin], count, peer), {}});
  }
  const std::uint64_t before = communicator.pairs().traffic().around_bytes;
  const Status status = run_operations(calls);
  EXPECT_TRUE(status) << status.error().message;
  for (Rank peer = 0; peer < 2; ++peer) {
    const Bytes& in = own_in_place && peer == rank ? sent : received;
    const std::size_t begin = kOdd + static_cast<std::size_t>(peer) * count;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) wrong += in[begin + i] != value(peer, rank, i);
    EXPECT_EQ(wrong, 0U) << "of " << count << " from rank " << peer;
  }
  EXPECT_EQ(received.front(), 7);
  EXPECT_EQ(received.back(), 7);
  return communicator.pairs().traffic().around_bytes - before;
}

class LargeTransfers : public testing::TestWithParam<TransportChoice> {
 protected:
  static Config config_of(std::uint64_t nt_bytes) {
    Config config;
    config.transport = GetParam();
    config.nt_bytes = nt_bytes;
    return config;
  }
};

TEST_P(LargeTransfers, AreExactAroundTheCache) {
  with_two(
      [](Rank rank, Member& member, std::barrier<>&) {
        for (const std::size_t count : {1UL, 333UL, 20'000UL})
          for (const bool own_in_place : {false, true}) exchange(member, rank, count, own_in_place);
        const std::uint64_t around = exchange(member, rank, kLarge, false);
        EXPECT_EQ(exchange(member, rank, kLarge, true), 0U);
        // Over a wire the peer's block may be read to where it belongs.
        EXPECT_GE(around, GetParam() == TransportChoice::kTcp ? kLarge : 2 * kLarge);
        EXPECT_LE(around, 2 * kLarge);
      },
      config_of(kLarge));
}

TEST_P(LargeTransfers, StayInTheCacheWhereTheyFit) {
  with_two([](Rank rank, Member& member,
              std::barrier<>&) { EXPECT_EQ(exchange(member, rank, kLarge, false), 0U); },
           config_of(1 << 20));
}

INSTANTIATE_TEST_SUITE_P(, LargeTransfers,
                         testing::Values(TransportChoice::kShm, TransportChoice::kTcp));

}  // namespace
}  // namespace tutti::test
