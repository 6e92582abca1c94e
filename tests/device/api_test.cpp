// SPDX-License-Identifier: Apache-2.0
// The C API on emulated devices: calls that are made of others (sends and receives, and those with
// counts for each rank), and what it refuses of buffers in two kinds of memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tutti/stream.h>
#include <tutti/tutti.h>

#include <atomic>
#include <cstdint>
#include <numeric>
#include <vector>

#include "emulated_platform.hpp"
#include "tests/comm/job.hpp"
#include "tests/comm/transfer_rounds.hpp"
#include "tests/seed.hpp"

namespace tutti {
namespace {

// Two devices, to which the threads that make communicators get one after the other; all memory is
// theirs, but for what a test says.
class TwoDevices : public test::EmulatedPlatform {
 public:
  TwoDevices() : EmulatedPlatform({.devices = 2, .blocks = 64}) {}
  Result<int> current_device() override { return next_++ % 2; }
  int device_of(const void* memory) override { return memory == on_host ? -1 : 0; }
  std::string out_of_reach(int, const void* memory) override {
    return memory == elsewhere ? "memory of device 7" : "";
  }
  std::atomic<const void*> elsewhere{nullptr};
  std::atomic<const void*> on_host{nullptr};

 private:
  std::atomic<int> next_{0};
};
// Never destroyed, as CUDA's.
TwoDevices& platform() {
  static auto* const one = new TwoDevices;
  return *one;
}

}  // namespace

// In place of CUDA's.
namespace device {
Platform* cuda_platform(bool) { return &platform(); }
std::string_view cuda_fault() { return {}; }
}  // namespace device

namespace test {
namespace {

using ::testing::HasSubstr;
using Values = std::vector<std::int32_t>;
constexpr std::int32_t kUntouched = -7;

TEST(DeviceApi, SendsAndReceivesOfAnyPatternArrive) {
  const TransferRounds what{.seed = draw_seed(), .rounds = 12, .most_bytes = 1 << 16};
  for (const int ranks : {1, 2, 5})
    run_job(ranks, {}, [&](int rank, tuttiComm_t& comm) {
      EmulatedStream stream;
      check_rounds(comm, rank, ranks, what,
                   {reinterpret_cast<tuttiStream_t>(&stream), [&] { stream.synchronize(); }});
    });
}

// Counts that every rank knows: of the block that `from` has for `to`.
std::size_t count_of(int from, int to) {
  return from == to ? 3 : static_cast<std::size_t>(7 * from + 11 * to) % 5 * 100;
}
std::int32_t value_of(int from, int to, std::size_t i) {
  return 10'000 * from + 1000 * to + static_cast<std::int32_t>(i);
}

// Blocks one behind the other, with a gap in front of each.
struct Layout {
  std::vector<std::size_t> counts, displacements;
  std::size_t length = 0;
  template <class Count>
  Layout(int ranks, const Count& count) {
    for (int rank = 0; rank < ranks; ++rank) {
      counts.push_back(count(rank));
      displacements.push_back(length + 2);
      length = displacements.back() + counts.back();
    }
  }
  template <class Value>
  [[nodiscard]] Values filled(const Value& value) const {
    Values data(length, kUntouched);
    for (std::size_t block = 0; block < counts.size(); ++block)
      for (std::size_t i = 0; i < counts[block]; ++i)
        data[displacements[block] + i] = value(static_cast<int>(block), i);
    return data;
  }
};

// Runs `body` as each of three ranks, on a stream of its own; the stream is idle when it returns.
template <class Body>
void as_ranks(const Body& body) {
  run_job(3, {}, [&](int rank, tuttiComm_t& comm) {
    EmulatedStream stream;
    body(rank, comm, reinterpret_cast<tuttiStream_t>(&stream), [&] { stream.synchronize(); });
  });
}

TEST(DeviceApi, AllToAllVPutsEveryBlockInItsPlace) {
  as_ranks([](int rank, tuttiComm_t comm, tuttiStream_t stream, const auto& synchronize) {
    const Layout out(3, [&](int peer) { return count_of(rank, peer); });
    const Layout in(3, [&](int peer) { return count_of(peer, rank); });
    const Values sent = out.filled([&](int to, std::size_t i) { return value_of(rank, to, i); });
    Values received(in.length, kUntouched);
    ASSERT_EQ(
        tuttiAlltoAllv(sent.data(), out.counts.data(), out.displacements.data(), received.data(),
                       in.counts.data(), in.displacements.data(), tuttiInt32, comm, stream),
        tuttiSuccess)
        << tuttiGetLastError(comm);
    synchronize();
    EXPECT_EQ(received,
              in.filled([&](int from, std::size_t i) { return value_of(from, rank, i); }));
  });
}

TEST(DeviceApi, GatherVAndScatterVAreEachOthersInverse) {
  constexpr int kRoot = 2;
  as_ranks([](int rank, tuttiComm_t comm, tuttiStream_t stream, const auto& synchronize) {
    const Layout all(3, [&](int peer) { return count_of(peer, kRoot); });
    const std::size_t own = all.counts[static_cast<std::size_t>(rank)];
    Values mine(own), whole(all.length, kUntouched), back(own, kUntouched);
    for (std::size_t i = 0; i < own; ++i) mine[i] = value_of(rank, kRoot, i);
    ASSERT_EQ(tuttiGatherv(mine.data(), own, whole.data(), all.counts.data(),
                           all.displacements.data(), tuttiInt32, kRoot, comm, stream),
              tuttiSuccess)
        << tuttiGetLastError(comm);
    ASSERT_EQ(tuttiScatterv(whole.data(), all.counts.data(), all.displacements.data(), back.data(),
                            own, tuttiInt32, kRoot, comm, stream),
              tuttiSuccess)
        << tuttiGetLastError(comm);
    synchronize();
    if (rank == kRoot) {
      EXPECT_EQ(whole,
                all.filled([](int from, std::size_t i) { return value_of(from, kRoot, i); }));
    }
    EXPECT_EQ(back, mine);
  });
}

// The root's own block stays where it is.
TEST(DeviceApi, GatherVInPlace) {
  as_ranks([](int rank, tuttiComm_t comm, tuttiStream_t stream, const auto& synchronize) {
    const Layout all(3, [](int peer) { return count_of(peer, 0); });
    const auto own = static_cast<std::size_t>(rank);
    Values whole(all.length, kUntouched), mine(all.counts[own]);
    std::int32_t* const input = rank == 0 ? whole.data() + all.displacements[own] : mine.data();
    for (std::size_t i = 0; i < all.counts[own]; ++i) input[i] = value_of(rank, 0, i);
    ASSERT_EQ(tuttiGatherv(input, all.counts[own], whole.data(), all.counts.data(),
                           all.displacements.data(), tuttiInt32, 0, comm, stream),
              tuttiSuccess)
        << tuttiGetLastError(comm);
    synchronize();
    if (rank == 0) {
      EXPECT_EQ(whole, all.filled([](int from, std::size_t i) { return value_of(from, 0, i); }));
    }
  });
}

// Rank 2 has no block of the first call, and cannot tell that it is one of device memory.
TEST(DeviceApi, CallsOfAGroupHaveOneOrderOnAllRanks) {
  as_ranks([](int rank, tuttiComm_t comm, tuttiStream_t stream, const auto& synchronize) {
    const std::vector<std::size_t> first{4, 4, 0}, second{4, 4, 4}, places{0, 4, 8};
    const auto own = static_cast<std::size_t>(rank);
    const Values mine(4, rank);
    Values one(12, kUntouched), two(12, kUntouched);
    ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
    EXPECT_EQ(tuttiGatherv(mine.data(), first[own], one.data(), first.data(), places.data(),
                           tuttiInt32, 0, comm, stream),
              tuttiSuccess);
    EXPECT_EQ(tuttiGatherv(mine.data(), second[own], two.data(), second.data(), places.data(),
                           tuttiInt32, 1, comm, stream),
              tuttiSuccess);
    ASSERT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
    synchronize();
    const std::int32_t u = kUntouched;
    if (rank == 0) {
      EXPECT_EQ(one, (Values{0, 0, 0, 0, 1, 1, 1, 1, u, u, u, u}));
    }
    if (rank == 1) {
      EXPECT_EQ(two, (Values{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}));
    }
  });
}

// A group with a call on a device waits for no other communicator's calls on streams.
TEST(DeviceApi, AGroupDoesNotWaitForStreamsOfOtherCommunicators) {
  run_job(1, {}, [](int, tuttiComm_t& on_device) {
    run_job(1, {}, [&](int, tuttiComm_t& on_host) {
      EmulatedStream stream;
      tuttiStream_t host_stream = nullptr;
      ASSERT_EQ(tuttiStreamCreate(&host_stream), tuttiSuccess);
      std::atomic<bool> begin{false};
      ASSERT_EQ(tuttiLaunchHostFunc(
                    host_stream,
                    [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); }, &begin),
                tuttiSuccess);
      std::int32_t here = 5, there = 6;
      platform().on_host = &here;
      const auto sum = [](std::int32_t* data, tuttiComm_t comm, tuttiStream_t on) {
        return tuttiAllReduce(data, data, 1, tuttiInt32, tuttiSum, comm, on);
      };
      EXPECT_EQ(sum(&here, on_host, host_stream), tuttiSuccess) << tuttiGetLastError(on_host);
      ASSERT_EQ(tuttiGroupStart(), tuttiSuccess);
      EXPECT_EQ(sum(&there, on_device, reinterpret_cast<tuttiStream_t>(&stream)), tuttiSuccess);
      EXPECT_EQ(sum(&here, on_host, host_stream), tuttiSuccess);
      EXPECT_EQ(tuttiGroupEnd(), tuttiSuccess) << tuttiGetLastError(nullptr);
      begin = true;
      begin.notify_all();
      EXPECT_EQ(tuttiStreamSynchronize(host_stream), tuttiSuccess);
      EXPECT_EQ(tuttiStreamDestroy(host_stream), tuttiSuccess);
      stream.synchronize();
      platform().on_host = nullptr;
    });
  });
}

// In place and not.
TEST(DeviceApi, AllGatherVGivesEveryRankEveryBlock) {
  as_ranks([](int rank, tuttiComm_t comm, tuttiStream_t stream, const auto& synchronize) {
    const Layout all(3, [](int peer) { return count_of(peer, 1); });
    const auto own = static_cast<std::size_t>(rank);
    const Values wanted = all.filled([](int from, std::size_t i) { return value_of(from, 1, i); });
    for (const bool in_place : {false, true}) {
      Values received(all.length, kUntouched), mine(all.counts[own]);
      std::int32_t* const input = in_place ? received.data() + all.displacements[own] : mine.data();
      for (std::size_t i = 0; i < all.counts[own]; ++i) input[i] = value_of(rank, 1, i);
      ASSERT_EQ(tuttiAllGatherv(input, all.counts[own], received.data(), all.counts.data(),
                                all.displacements.data(), tuttiInt32, comm, stream),
                tuttiSuccess)
          << tuttiGetLastError(comm);
      synchronize();
      EXPECT_EQ(received, wanted) << (in_place ? "in place" : "");
    }
  });
}

TEST(DeviceApi, ReduceScatterVGivesEveryRankTheSumOfItsBlock) {
  as_ranks([](int rank, tuttiComm_t comm, tuttiStream_t stream, const auto& synchronize) {
    const Layout all(3, [](int peer) { return count_of(peer, 1); });
    const auto own = static_cast<std::size_t>(rank);
    for (const bool in_place : {false, true}) {
      Values sent = all.filled([&](int to, std::size_t i) { return value_of(rank, to, i); });
      Values received(all.counts[own], kUntouched);
      std::int32_t* const output =
          in_place ? sent.data() + all.displacements[own] : received.data();
      ASSERT_EQ(tuttiReduceScatterv(sent.data(), all.counts.data(), all.displacements.data(),
                                    output, all.counts[own], tuttiInt32, tuttiSum, comm, stream),
                tuttiSuccess)
          << tuttiGetLastError(comm);
      synchronize();
      for (std::size_t i = 0; i < all.counts[own]; ++i)
        ASSERT_EQ(output[i], value_of(0, rank, i) + value_of(1, rank, i) + value_of(2, rank, i));
    }
  });
}

// A buffer of which only a later block would tell: nothing of the call runs, and it may come again.
TEST(DeviceApi, ARefusedCallOfBlocksHasNotRun) {
  Values elsewhere(40, 1);
  platform().elsewhere = elsewhere.data();
  as_ranks([&](int rank, tuttiComm_t comm, tuttiStream_t stream, const auto& synchronize) {
    const std::vector<std::size_t> counts{40, 40, 40};
    Values mine(40, rank), received(120);
    const auto call = [&](const void* input) {
      return tuttiAllGatherv(input, 40, received.data(), counts.data(), nullptr, tuttiInt32, comm,
                             stream);
    };
    if (rank == 1) {
      EXPECT_EQ(call(elsewhere.data()), tuttiInvalidArgument);
      EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("sendbuff is memory of device 7"));
    }
    EXPECT_EQ(call(mine.data()), tuttiSuccess) << tuttiGetLastError(comm);
    synchronize();
    for (std::size_t i = 0; i < 120; ++i) ASSERT_EQ(received[i], static_cast<int>(i / 40));
  });
  platform().elsewhere = nullptr;
}

TEST(DeviceApi, OneKindOfMemoryForBothBuffers) {
  run_job(1, {}, [](int, tuttiComm_t& comm) {
    Values sent(4), received(4);
    const std::size_t count = 4, place = 0;
    platform().on_host = sent.data();
    EXPECT_EQ(tuttiAlltoAllv(sent.data(), &count, &place, received.data(), &count, &place,
                             tuttiInt32, comm, nullptr),
              tuttiInvalidArgument);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("sendbuff is host memory and recvbuff is device "
                                                   "memory; use the same for both"));
    EXPECT_EQ(tuttiAllReduce(sent.data(), received.data(), 4, tuttiInt32, tuttiSum, comm, nullptr),
              tuttiInvalidArgument);
    EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("sendbuff is host memory and recvbuff is device "
                                                   "memory; use the same for both"));
    platform().on_host = nullptr;
  });
}

}  // namespace
}  // namespace test
}  // namespace tutti
