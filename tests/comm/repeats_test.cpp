// SPDX-License-Identifier: Apache-2.0
// Small calls that repeat: results in any mixture of shapes, what takes the ordinary way, and calls
// that begin as a repetition and must wait, or fail.
#include "comm/repeats.hpp"

#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <array>
#include <barrier>
#include <vector>

#include "calls.hpp"
#include "exec/allocation.hpp"
#include "job.hpp"
#include "mixed_calls.hpp"
#include "repeating_member.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

TEST(Repeats, GiveWhatOtherCallsGive) {
  const unsigned seed = draw_seed();
  for (const int ranks : {1, 2, 3, 5, 8})
    run_job(ranks, {},
            [&](int rank, tuttiComm_t& comm) { make_mixed_calls(comm, rank, ranks, seed, 600); });
}

TEST(Repeats, AverageProductsAndTypesAreTheirOwn) {
  run_job(3, {}, [&](int rank, tuttiComm_t& comm) {
    for (int i = 0; i < 5; ++i) {
      const float mine = static_cast<float>(3 * rank + i);
      float average = 0, product = 0;
      double sum = 0;
      const double wide = mine;
      ASSERT_EQ(tuttiAllReduce(&mine, &average, 1, tuttiFloat, tuttiAvg, comm, nullptr),
                tuttiSuccess);
      ASSERT_EQ(tuttiAllReduce(&mine, &product, 1, tuttiFloat, tuttiProd, comm, nullptr),
                tuttiSuccess);
      ASSERT_EQ(tuttiAllReduce(&wide, &sum, 1, tuttiDouble, tuttiSum, comm, nullptr), tuttiSuccess);
      const auto n = static_cast<float>(i);
      EXPECT_EQ(average, 3 + n);
      EXPECT_EQ(product, n * (3 + n) * (6 + n));
      EXPECT_EQ(sum, 9 + 3 * n);
    }
  });
}

TEST(Repeats, RunWhatHasRepeated) {
  with_two([](Rank, Member& member, std::barrier<>&) {
    const std::uint64_t before = member.communicator->info().operations;
    for (int i = 0; i < 100; ++i) {
      member.in.assign(4, static_cast<float>(i));
      ASSERT_EQ(member.again(), Outcome::kEnded);
      EXPECT_EQ(member.out, std::vector<float>(4, static_cast<float>(2 * i)));
    }
    const Communicator::Info info = member.communicator->info();
    EXPECT_EQ(info.operations, before + 100);
    EXPECT_EQ(info.last_slices, 1u);
    EXPECT_EQ(info.payload_bytes_sent, info.operations * 4 * sizeof(float));
  });
}

TEST(Repeats, WhatIsNotAsItWasTakesTheOrdinaryWay) {
  with_two([](Rank rank, Member& member, std::barrier<>& together) {
    Call call = member.small();
    call.count = 3;
    EXPECT_EQ(member.again(call), Outcome::kElsewhere);
    call = member.small();
    call.op = ReduceOp::kMax;
    EXPECT_EQ(member.again(call), Outcome::kElsewhere);
    call = member.small();
    call.input = nullptr;
    EXPECT_EQ(member.again(call), Outcome::kElsewhere);
    call.input = reinterpret_cast<const std::byte*>(member.in.data()) + 1;
    EXPECT_EQ(member.again(call), Outcome::kElsewhere);
    call.input = member.out.data() + 1;  // overlaps, and not in place
    EXPECT_EQ(member.again(call), Outcome::kElsewhere);
    {
      const InFlightCall other(member.communicator->call_slot(), "a call");
      EXPECT_EQ(member.again(), Outcome::kElsewhere);
    }
    EXPECT_EQ(member.again(), Outcome::kEnded);
    ASSERT_TRUE(member.communicator->set_algorithm("ring@slots"));
    EXPECT_EQ(member.again(), Outcome::kElsewhere);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(member.ordinary());
    EXPECT_EQ(member.again(), Outcome::kEnded);
    EXPECT_EQ(member.communicator->info().last_algorithm, "ring");
    ASSERT_TRUE(member.communicator->set_algorithm("two_shot:access=remote"));
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(member.ordinary());
    EXPECT_EQ(member.again(), Outcome::kElsewhere);  // peers' memory is not simple
    ASSERT_TRUE(member.communicator->set_algorithm("auto"));
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(member.ordinary());
    EXPECT_EQ(member.again(), Outcome::kEnded);
    together.arrive_and_wait();
    if (rank == 0) {
      EXPECT_TRUE(member.communicator->finalize());
      EXPECT_EQ(member.again(), Outcome::kElsewhere);
    }
  });
}

// Plans that divide the receive buffers otherwise, by turns: each comes behind the fence of the
// other, which is open where the peers are done.
TEST(Repeats, ByTurnsWithAPlanThatUsesTheSameMemory) {
  with_two([](Rank, Member& member, std::barrier<>& together) {
    ASSERT_TRUE(member.communicator->set_algorithm("ring@slots"));
    member.in.assign(4096, 1);
    member.out.assign(4096, 0);
    Call reduction = member.small(), broadcast = reduction;
    broadcast.collective = Collective::kBroadcast;
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(member.ordinary(reduction));
      ASSERT_TRUE(member.ordinary(broadcast));
    }
    for (int i = 0; i < 20; ++i)
      for (const Call* const call : {&reduction, &broadcast}) {
        together.arrive_and_wait();
        EXPECT_EQ(member.again(*call), Outcome::kEnded);
        EXPECT_EQ(member.out[4095], call == &reduction ? 2 : 1);
      }
  });
}

TEST(Repeats, ACallThatWaitsForLongGoesOnWhereItWas) { wait_for_long_and_go_on({}); }

// Of each plan, with no look at all between its steps, beside one that goes straight.
TEST(Repeats, GoOnAtEveryStepAndCountAlike) {
  for (const char* const algorithm :
       {"butterfly@flagged", "one_shot@flagged", "ring@flagged", "tree@flagged",
        "rabenseifner@flagged", "butterfly@slots", "ring@slots"}) {
    std::uint64_t bytes[2] = {}, messages[2] = {};
    for (const bool straight : {true, false})
      with_two([&](Rank rank, Member& member, std::barrier<>&) {
        ASSERT_TRUE(member.communicator->set_algorithm(algorithm));
        for (int i = 0; i < 3; ++i) ASSERT_TRUE(member.ordinary());
        if (!straight) member.communicator->wait_policy().spins = 0;
        for (int i = 0; i < 30; ++i) {
          member.in = {1, 2, static_cast<float>(i), static_cast<float>(rank)};
          ASSERT_NE(member.again(), Outcome::kFailed);
          if (member.out[2] != static_cast<float>(2 * i)) {
            ASSERT_TRUE(member.ordinary());  // a plan that is not simple
          }
          EXPECT_EQ(member.out, (std::vector<float>{2, 4, static_cast<float>(2 * i), 1}));
        }
        if (rank != 0) return;
        bytes[straight] = member.communicator->info().payload_bytes_sent;
        messages[straight] = member.communicator->info().messages_sent;
      });
    EXPECT_EQ(bytes[0], bytes[1]) << algorithm;
    EXPECT_EQ(messages[0], messages[1]) << algorithm;
  }
}

// A sum that is pre-multiplied has the shape of a plain one.
TEST(Repeats, APreMultipliedSumIsItsOwn) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    float two = 2;
    tuttiRedOp_t twice{};
    ASSERT_EQ(tuttiRedOpCreatePreMulSum(&twice, &two, tuttiFloat, tuttiScalarHostImmediate, comm),
              tuttiSuccess);
    for (int i = 0; i < 8; ++i) {
      const auto mine = static_cast<float>(rank + i);
      float sum = 0;
      ASSERT_EQ(
          tuttiAllReduce(&mine, &sum, 1, tuttiFloat, i % 2 == 0 ? tuttiSum : twice, comm, nullptr),
          tuttiSuccess);
      EXPECT_EQ(sum, static_cast<float>((2 * i + 1) * (i % 2 + 1)));
    }
  });
}

// A window decides the plan of calls in it; there are none before it and after it. Some calls lie
// in it, some do not.
TEST(Repeats, WindowsComeAndGo) {
  run_job(2, {}, [](int rank, tuttiComm_t& comm) {
    void* memory = nullptr;
    ASSERT_EQ(tuttiMemAlloc(&memory, 4096), tuttiSuccess);
    std::array<float, 2> elsewhere{};
    const auto sum = [&](int call) {
      auto* const data = call % 3 == 1 ? elsewhere.data() : static_cast<float*>(memory);
      data[0] = static_cast<float>(rank + call);
      ASSERT_EQ(tuttiAllReduce(data, data + 1, 1, tuttiFloat, tuttiSum, comm, nullptr),
                tuttiSuccess)
          << tuttiGetLastError(comm);
      EXPECT_EQ(data[1], static_cast<float>(1 + 2 * call));
    };
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 12; ++i) sum(i);
      tuttiWindow_t window = nullptr;
      ASSERT_EQ(tuttiCommWindowRegister(comm, memory, 4096, &window, TUTTI_WIN_COLL_SYMMETRIC),
                tuttiSuccess);
      for (int i = 0; i < 12; ++i) sum(i);
      ASSERT_EQ(tuttiCommWindowDeregister(comm, window), tuttiSuccess);
    }
    for (int i = 0; i < 4; ++i) sum(i);
    EXPECT_EQ(tuttiMemFree(memory), tuttiSuccess);
  });
}

// A call in a window repeats calls in it, and one elsewhere does not.
TEST(Repeats, InWindowsAsElsewhere) {
  with_two([](Rank, Member& member, std::barrier<>& together) {
    constexpr std::size_t kBytes = 8192;
    void* const memory = *allocate(kBytes);
    const std::uint64_t id = new_window_id();
    ASSERT_TRUE(member.communicator->add_window(
        {.id = id, .memory = memory, .bytes = kBytes, .symmetric = true}));
    EXPECT_EQ(member.again(), Outcome::kElsewhere);
    Call inside = member.small();
    auto* const data = static_cast<float*>(memory);
    std::fill_n(data, 4, 2.0F);
    inside.input = data;
    inside.output = data + 4;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(member.ordinary(inside));
    EXPECT_EQ(member.again(), Outcome::kElsewhere);
    inside.output = data + 8;
    EXPECT_EQ(member.again(inside), Outcome::kEnded);
    EXPECT_EQ(data[8], 4.0F);
    together.arrive_and_wait();
    ASSERT_TRUE(member.communicator->remove_window(id));
    EXPECT_EQ(member.again(inside), Outcome::kElsewhere);
    together.arrive_and_wait();
    EXPECT_TRUE(free_allocation(memory));
  });
}

TEST(Repeats, CallsThatDifferAreNamed) { differ_and_be_named({}); }

TEST(Repeats, WhoDoesNotComeInTimeIsNamed) { come_late_and_be_named({}, 50'000'000); }

}  // namespace
}  // namespace tutti::test
