// SPDX-License-Identifier: Apache-2.0
// Small calls that repeat where messages have to be moved: over TCP, alone and beside shared
// memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "hosts_job.hpp"
#include "mixed_calls.hpp"
#include "repeating_member.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

Config by_tcp() {
  Config config;
  config.transport = TransportChoice::kTcp;
  config.interfaces = "lo";
  config.op_timeout_ns = 20'000'000'000;  // a test that is wrong ends
  return config;
}

Call broadcast_of(Member& member) {
  Call call = member.small();
  call.collective = Collective::kBroadcast;
  return call;
}

TEST(RepeatsPumped, RunWhatHasRepeated) {
  with_two(
      [](Rank, Member& member, std::barrier<>&) {
        ASSERT_EQ(member.communicator->transport()->name(), "tcp");
        // However long a look takes, all of a call is done before the last one.
        WaitPolicy& policy = member.communicator->wait_policy();
        policy.spins = policy.look_at = UINT32_MAX;
        const std::uint64_t before = member.communicator->info().operations;
        for (int i = 0; i < 100; ++i) {
          member.in.assign(4, static_cast<float>(i));
          ASSERT_EQ(member.again(), Outcome::kEnded);
          EXPECT_FALSE(member.slowly);
          EXPECT_EQ(member.out, std::vector<float>(4, static_cast<float>(2 * i)));
        }
        const Communicator::Info info = member.communicator->info();
        EXPECT_EQ(info.operations, before + 100);
        EXPECT_EQ(info.payload_bytes_sent, info.operations * 4 * sizeof(float));
      },
      by_tcp());
}

// Of each plan, with no look at all between its steps, beside one that goes straight.
TEST(RepeatsPumped, GoOnAtEveryStepAndCountAlike) {
  for (const char* const algorithm :
       {"butterfly@flagged", "one_shot@flagged", "ring@flagged", "tree@slots", "butterfly@slots"}) {
    std::uint64_t bytes[2] = {}, messages[2] = {};
    for (const bool straight : {true, false})
      with_two(
          [&](Rank rank, Member& member, std::barrier<>&) {
            ASSERT_TRUE(member.communicator->set_algorithm(algorithm));
            for (int i = 0; i < 3; ++i) ASSERT_TRUE(member.ordinary());
            if (!straight) member.communicator->wait_policy().spins = 0;
            for (int i = 0; i < 30; ++i) {
              member.in = {1, 2, static_cast<float>(i), static_cast<float>(rank)};
              ASSERT_EQ(member.again(), Outcome::kEnded);
              EXPECT_EQ(member.out, (std::vector<float>{2, 4, static_cast<float>(2 * i), 1}));
            }
            if (rank != 0) return;
            bytes[straight] = member.communicator->info().payload_bytes_sent;
            messages[straight] = member.communicator->info().messages_sent;
          },
          by_tcp());
    EXPECT_EQ(bytes[0], bytes[1]) << algorithm;
    EXPECT_EQ(messages[0], messages[1]) << algorithm;
  }
}

// A root runs ahead until it lacks credits, which the other, who has nothing to send, returns on
// its own. And when a call of it is over, all that it has sent has left it, though it does nothing
// until the other has it.
TEST(RepeatsPumped, WhoSendsOneWayIsThroughByItself) {
  for (const char* const algorithm : {"one_shot@flagged", "one_shot@slots"})
    with_two(
        [&](Rank rank, Member& member, std::barrier<>& together) {
          EXPECT_TRUE(member.communicator->set_algorithm(algorithm));
          const Call call = broadcast_of(member);
          for (int i = 0; i < 3; ++i) EXPECT_TRUE(member.ordinary(call));
          for (int i = 0; i < 320; ++i) {
            const bool by_turns = i < 20;
            if (by_turns && rank == 1) together.arrive_and_wait();
            if (rank == 0) member.in.assign(4, static_cast<float>(i));
            EXPECT_EQ(member.again(call), Outcome::kEnded);
            EXPECT_EQ(member.out, std::vector<float>(4, static_cast<float>(i)));
            if (by_turns && rank == 0) together.arrive_and_wait();
            if (by_turns) together.arrive_and_wait();
          }
        },
        by_tcp());
}

// Larger ones go from the user's memory to the user's memory, which the ordinary way does.
TEST(RepeatsPumped, NotWhatIsSentWithoutACopy) {
  with_two(
      [](Rank, Member& member, std::barrier<>&) {
        ASSERT_TRUE(member.communicator->set_algorithm("one_shot@slots"));
        member.in.assign(kLeastLentBytes / sizeof(float), 1);
        member.out = member.in;
        const Call call = broadcast_of(member);
        for (int i = 0; i < 5; ++i) ASSERT_TRUE(member.ordinary(call));
        EXPECT_EQ(member.again(call), Outcome::kElsewhere);
      },
      by_tcp());
}

TEST(RepeatsPumped, ACallThatWaitsForLongGoesOnWhereItWas) { wait_for_long_and_go_on(by_tcp()); }

TEST(RepeatsPumped, CallsThatDifferAreNamed) { differ_and_be_named(by_tcp()); }

TEST(RepeatsPumped, WhoDoesNotComeInTimeIsNamed) {
  come_late_and_be_named(by_tcp(), 1'000'000'000);
}

// What the transport says is told by the call that it ended, and the others hear who failed.
TEST(RepeatsPumped, AnErrorOfTheTransportEndsTheCall) {
  with_two(
      [](Rank rank, Member& member, std::barrier<>& together) {
        together.arrive_and_wait();  // all that went well is over
        const Call call = member.small();
        if (rank == 1) {
          const Status status = member.ordinary(call);
          ASSERT_FALSE(status);
          EXPECT_THAT(status.error().message, HasSubstr("rank 0 (pid"));
          return;
        }
        BoundPlan& plan = *member.communicator->plans().last_bound();
        const std::uint64_t number = ++member.communicator->counts().issued;
        const OperationSignature signature{.operation = number,
                                           .collective = call.collective,
                                           .type = call.type,
                                           .op = call.op,
                                           .count = call.count,
                                           .plan = plan.plan.id};
        const InFlightCall in_flight(member.communicator->call_slot(), "tuttiAllReduce");
        const Status status = run_begun(*member.communicator, call, plan, signature,
                                        make_error(Code::kSystemError, "the wire is cut"));
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().message, "the wire is cut");
        EXPECT_TRUE(member.communicator->members().disturbed());
      },
      by_tcp());
}

// In the midst of calls that repeat, those in which both send and those in which one does.
TEST(RepeatsPumped, ADeathIsTold) {
  ::setenv("TUTTI_TRANSPORT", "tcp", 1);
  for (const int root : {-1, 0, 1})
    run_processes(
        2,
        [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
          float value = 1;
          tuttiResult_t result = tuttiSuccess;
          for (int i = 0; result == tuttiSuccess; ++i) {
            if (self.rank == 1 && i == 50) std::raise(SIGKILL);
            result = root < 0
                         ? tuttiAllReduce(&value, &value, 1, tuttiFloat, tuttiSum, comm, nullptr)
                         : tuttiBroadcast(&value, &value, 1, tuttiFloat, root, comm, nullptr);
          }
          EXPECT_EQ(result, tuttiRemoteError);
          EXPECT_THAT(tuttiGetLastError(comm), HasSubstr("rank 1 (pid"));
        },
        {1});
  ::unsetenv("TUTTI_TRANSPORT");
}

// Also of ranks that share memory with some of their peers; with looks to spare, and where ranks
// outnumber the cores.
TEST(RepeatsPumped, GiveWhatOtherCallsGive) {
  const unsigned seed = draw_seed();
  for (const Hosts& hosts : {Hosts{.ranks = 3, .ranks_per_host = 1}, Hosts{.ranks = 4}})
    for (const char* const spins : {"0", "500"})
      run_hosts(
          hosts, [&](int) { set("TUTTI_SPIN", spins); },
          [&](tuttiComm_t& comm, const testing::ForkedRank& self) {
            make_mixed_calls(comm, self.rank, self.ranks, seed, kSanitized ? 150 : 400);
          });
}

}  // namespace
}  // namespace tutti::test
