// SPDX-License-Identifier: Apache-2.0
// tuttiGroupSimulateEnd on sends and receives, alone, as parts of other calls, and beside
// collectives: prices compared with each other. The formula itself is tests/model's.
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <array>
#include <functional>
#include <vector>

#include "tests/comm/hosts_job.hpp"
#include "tests/comm/job.hpp"

namespace tutti::test {
namespace {

// What a group of these calls would take, in us. Nothing runs, so no other rank needs to call.
float simulated(const std::function<void()>& calls) {
  tuttiSimInfo_t info = TUTTI_SIM_INFO_INITIALIZER;
  EXPECT_EQ(tuttiGroupStart(), tuttiSuccess);
  calls();
  EXPECT_EQ(tuttiGroupSimulateEnd(&info), tuttiSuccess) << tuttiGetLastError(nullptr);
  return info.estimatedTime;
}

// The buffers of a rank's calls; no price reads them.
struct Buffers {
  std::vector<std::byte> out = std::vector<std::byte>(1 << 20, std::byte{1});
  std::vector<std::byte> in = std::vector<std::byte>(1 << 20);
  tuttiComm_t comm;

  void send(std::size_t bytes, int peer) const {
    EXPECT_EQ(tuttiSend(out.data(), bytes, tuttiInt8, peer, comm, nullptr), tuttiSuccess)
        << tuttiGetLastError(comm);
  }
  void receive(std::size_t bytes, int peer) {
    EXPECT_EQ(tuttiRecv(in.data(), bytes, tuttiInt8, peer, comm, nullptr), tuttiSuccess)
        << tuttiGetLastError(comm);
  }
  void exchange(std::size_t bytes, int peer) {
    send(bytes, peer);
    receive(bytes, peer);
  }
};

TEST(SimulatedTransfers, TakeMoreWithMoreBytesAndMorePeers) {
  constexpr int kRanks = 4;
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    Buffers buffers{.comm = comm};
    const int next = (rank + 1) % kRanks, after = (rank + 2) % kRanks;
    float before = 0;
    for (const std::size_t bytes : {1UL, 8UL, 4096UL, 65'536UL, 70'000UL, 1UL << 20}) {
      const float send = simulated([&] { buffers.send(bytes, next); });
      const float receive = simulated([&] { buffers.receive(bytes, next); });
      const float both = simulated([&] { buffers.exchange(bytes, next); });
      const float two_peers = simulated([&] {
        buffers.exchange(bytes, next);
        buffers.exchange(bytes, after);
      });
      EXPECT_GT(send, before) << bytes;
      EXPECT_FLOAT_EQ(receive, send) << bytes;
      EXPECT_GT(both, send) << bytes;
      EXPECT_GT(two_peers, both) << bytes;
      before = send;
    }
    EXPECT_EQ(buffers.in, std::vector<std::byte>(1 << 20)) << "nothing ran";
  });
}

TEST(SimulatedTransfers, OfNoElementsTakeNothing) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    Buffers buffers{.comm = comm};
    EXPECT_EQ(simulated([&] { buffers.exchange(0, 1 - rank); }), 0);
  });
}

// Of a rank alone, too: there is a copy, but no message.
TEST(SimulatedTransfers, ToItselfARankTakesACopy) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    Buffers buffers{.comm = comm};
    const float itself = simulated([&] { buffers.exchange(1 << 20, rank); });
    EXPECT_GT(itself, simulated([&] { buffers.exchange(1 << 10, rank); }));
    EXPECT_LT(itself, simulated([&] { buffers.exchange(1 << 20, 1 - rank); }));
  });
  run_job(1, {}, [](int, tuttiComm_t& comm) {
    Buffers buffers{.comm = comm};
    EXPECT_GT(simulated([&] { buffers.exchange(1 << 20, 0); }), 0);
  });
}

TEST(SimulatedTransfers, OfCallsWithCountsAreThoseTheyAreMadeOf) {
  constexpr int kRanks = 3;
  run_job(kRanks, {}, [&](int rank, tuttiComm_t& comm) {
    Buffers buffers{.comm = comm};
    const std::array<std::size_t, kRanks> counts{100, 70'000, 3000}, places{0, 100'000, 200'000};
    const float called = simulated([&] {
      EXPECT_EQ(tuttiAlltoAllv(buffers.out.data(), counts.data(), places.data(), buffers.in.data(),
                               counts.data(), places.data(), tuttiInt8, comm, nullptr),
                tuttiSuccess);
    });
    const float made = simulated([&] {
      for (int peer = 0; peer < kRanks; ++peer)
        buffers.exchange(counts[static_cast<std::size_t>(peer)], peer);
    });
    EXPECT_GT(called, 0);
    EXPECT_FLOAT_EQ(called, made);
    const float gathered = simulated([&] {
      EXPECT_EQ(tuttiGatherv(buffers.out.data(), counts[static_cast<std::size_t>(rank)],
                             buffers.in.data(), counts.data(), places.data(), tuttiInt8, 1, comm,
                             nullptr),
                tuttiSuccess);
    });
    EXPECT_FLOAT_EQ(gathered, simulated([&] {
                      buffers.send(counts[static_cast<std::size_t>(rank)], 1);
                      for (int peer = 0; rank == 1 && peer < kRanks; ++peer)
                        buffers.receive(counts[static_cast<std::size_t>(peer)], peer);
                    }));
  });
}

TEST(SimulatedTransfers, AddToTheCollectivesOfTheirGroup) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    Buffers buffers{.comm = comm};
    const auto reduce = [&] {
      EXPECT_EQ(tuttiAllReduce(buffers.out.data(), buffers.in.data(), 1 << 20, tuttiInt8, tuttiSum,
                               comm, nullptr),
                tuttiSuccess);
    };
    const auto exchange = [&] { buffers.exchange(1 << 20, 1 - rank); };
    const float both = simulated([&] {
      exchange();
      reduce();
    });
    EXPECT_FLOAT_EQ(both, simulated(reduce) + simulated(exchange));
  });
}

// Ranks 0 and 1 share a host, 2 and 3 another one.
TEST(SimulatedTransfers, BetweenHostsTakeTheWire) {
  run_hosts(
      {.ranks = 4}, [](int /*host*/) { set("TUTTI_IB_HCA", "=none"); },
      [](tuttiComm_t& comm, const testing::ForkedRank& self) {
        Buffers buffers{.comm = comm};
        const int neighbour = self.rank ^ 1, far = self.rank ^ 2;
        for (const std::size_t bytes : {8UL, 1UL << 20})
          EXPECT_GT(simulated([&] { buffers.exchange(bytes, far); }),
                    2 * simulated([&] { buffers.exchange(bytes, neighbour); }))
              << bytes;
      });
}

}  // namespace
}  // namespace tutti::test
