// SPDX-License-Identifier: Apache-2.0
// Sends and receives of device memory, on emulated devices: which meet, in what order streams go
// on, and who is told where a counterpart differs, does not come, or leaves.
#include "comm/transfers_on_devices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "emulated_job.hpp"

namespace tutti::test {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using Values = std::vector<std::int32_t>;

Call send(const Values& data, Rank to, DataType type = DataType::kInt32) {
  return {.collective = Collective::kSend,
          .input = data.data(),
          .count = data.size(),
          .type = type,
          .root = to,
          .on_device = true};
}
Call receive(Values& data, Rank from) {
  return {.collective = Collective::kRecv,
          .output = data.data(),
          .count = data.size(),
          .type = DataType::kInt32,
          .root = from,
          .on_device = true};
}
Call sum(Values& data) {
  return {.collective = Collective::kAllReduce,
          .input = data.data(),
          .output = data.data(),
          .count = data.size(),
          .type = DataType::kInt32,
          .on_device = true};
}

// One rank's calls, as a group.
Status group(Job& job, Rank rank, const std::vector<Call>& calls) {
  std::vector<HeldCall> held;
  for (const Call& call : calls) held.push_back(job.hold(rank, call));
  return run_on_devices(held);
}

// Each body in a thread of its own.
template <class... Bodies>
void together(const Bodies&... bodies) {
  std::vector<std::jthread> threads;
  (threads.emplace_back(bodies), ...);
}

TEST(TransfersOnDevices, ASendMeetsTheReceiveOfItsPlace) {
  Job job({});
  Values one(10, 1), two(2000, 2), first(10), second(2000);
  together(
      [&] {
        ASSERT_TRUE(group(job, 0, {send(one, 1), send(two, 1)}));
      },
      [&] {
        ASSERT_TRUE(job.call(1, receive(first, 0)));
        ASSERT_TRUE(job.call(1, receive(second, 0)));
      });
  job.synchronize();
  EXPECT_EQ(first, one);
  EXPECT_EQ(second, two);
  EXPECT_EQ(job.of(0).info().operations, 2u);
}

// The copy comes after what either stream held, and before what either holds later.
TEST(TransfersOnDevices, StreamsGoOnBehindTheCopy) {
  for (const Rank busy : {0, 1}) {
    Job job({.devices = 1 + busy});
    Values sent(100, 0), received(100, 0);
    std::atomic<bool> begin{false};
    job.stream(busy).enqueue([&] { begin.wait(false); });
    job.stream(0).enqueue([&] { std::ranges::fill(sent, 5); });
    job.stream(1).enqueue([&] { std::ranges::fill(received, 6); });
    together([&] { ASSERT_TRUE(job.call(0, send(sent, 1))); },
             [&] { ASSERT_TRUE(job.call(1, receive(received, 0))); });
    job.stream(0).enqueue([&] { std::ranges::fill(sent, 7); });
    job.stream(1).enqueue([&] { received[0] += 1; });
    EXPECT_TRUE(job.stream(1 - busy).waits_for_an_event());
    begin = true;
    begin.notify_all();
    job.synchronize();
    EXPECT_EQ(received[0], 6);
    received[0] = 5;
    EXPECT_THAT(received, Each(5));
  }
}

TEST(TransfersOnDevices, ARankSendsToItselfWithinAGroup) {
  Job job({});
  Values sent(50, 3), received(50);
  ASSERT_TRUE(group(job, 1, {receive(received, 1), send(sent, 1)}));
  job.synchronize();
  EXPECT_EQ(received, sent);
  const Status alone = job.call(1, send(sent, 1));
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().code, Code::kInvalidUsage);
  EXPECT_THAT(alone.error().message, HasSubstr("needs a recv of the same count and type"));
  EXPECT_FALSE(job.of(1).error());
}

// Sends and receives of both ways, beside a collective, from one thread for all ranks.
TEST(TransfersOnDevices, OneThreadCarriesAllRanksOfAGroup) {
  constexpr std::int32_t kRanks = 4;
  Job job({.ranks = kRanks});
  std::vector<Values> sent, received(kRanks, Values(300)), summed(kRanks, Values(20, 1));
  for (Rank rank = 0; rank < kRanks; ++rank) sent.emplace_back(300, rank);
  std::vector<HeldCall> calls;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    calls.push_back(job.hold(rank, send(sent[i], (rank + 1) % kRanks)));
    calls.push_back(job.hold(rank, sum(summed[i])));
    calls.push_back(job.hold(rank, receive(received[i], (rank + kRanks - 1) % kRanks)));
  }
  ASSERT_TRUE(run_on_devices(calls));
  job.synchronize();
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_THAT(received[rank], Each((rank + kRanks - 1) % kRanks));
    EXPECT_THAT(summed[rank], Each(kRanks));
  }
}

// Each thread sends in one job what the other receives, and the other way round in the other job.
TEST(TransfersOnDevices, GroupsOfSeveralCommunicatorsDoNotWaitInACircle) {
  Job jobs[] = {Job({}), Job({})};
  for (int round = 0; round < 20; ++round) {
    Values sent[2] = {Values(9, 10 + round), Values(9, 20 + round)},
           received[2] = {Values(9), Values(9)};
    const auto body = [&](Rank rank) {
      const auto i = static_cast<std::size_t>(rank);
      HeldCall calls[] = {jobs[i].hold(rank, send(sent[i], 1 - rank)),
                          jobs[1 - i].hold(rank, receive(received[i], 1 - rank))};
      ASSERT_TRUE(run_on_devices(calls));
    };
    together([&] { body(0); }, [&] { body(1); });
    for (Job& job : jobs) job.synchronize();
    EXPECT_EQ(received[0], sent[1]);
    EXPECT_EQ(received[1], sent[0]);
  }
}

// A group's collective waits for a rank whose send comes first, in a call of its own.
TEST(TransfersOnDevices, ASendAloneNeedsNothingOfThePeersGroupButItsReceive) {
  for (const int devices : {1, 2}) {
    Job job({.devices = devices});
    Values sent(30, 4), received(30), summed[2] = {Values(8, 1), Values(8, 1)};
    together(
        [&] {
          ASSERT_TRUE(group(job, 0, {sum(summed[0]), receive(received, 1)}));
        },
        [&] {
          ASSERT_TRUE(job.call(1, send(sent, 0)));
          ASSERT_TRUE(job.call(1, sum(summed[1])));
        });
    job.synchronize();
    EXPECT_EQ(received, sent);
    EXPECT_THAT(summed[0], Each(2));
  }
}

// Rank 0's first receive comes from a rank that itself waits for one that waits for rank 0.
TEST(TransfersOnDevices, ReceivesOfAGroupWaitForNoOrder) {
  Job job({.ranks = 3, .devices = 3});
  Values one(5, 1), two(5, 2), received[2] = {Values(5), Values(5)}, between(5);
  together(
      [&] {
        ASSERT_TRUE(group(job, 0, {receive(received[0], 1), receive(received[1], 2)}));
      },
      [&] {
        ASSERT_TRUE(job.call(1, receive(between, 2)));
        ASSERT_TRUE(job.call(1, send(one, 0)));
      },
      [&] {
        ASSERT_TRUE(job.call(2, send(two, 0)));
        ASSERT_TRUE(job.call(2, send(two, 1)));
      });
  job.synchronize();
  EXPECT_EQ(received[0], one);
  EXPECT_EQ(received[1], two);
  EXPECT_EQ(between, two);
}

// In either order of the communicators.
TEST(TransfersOnDevices, SendsAloneMeetAGroupOfSeveralCommunicators) {
  Job jobs[] = {Job({}), Job({})};
  for (const std::size_t first : {0, 1}) {
    Values sent(7, 3), received[2] = {Values(7), Values(7)};
    together(
        [&] {
          HeldCall calls[] = {jobs[0].hold(0, receive(received[0], 1)),
                              jobs[1].hold(0, receive(received[1], 1))};
          ASSERT_TRUE(run_on_devices(calls));
        },
        [&] {
          ASSERT_TRUE(jobs[first].call(1, send(sent, 0)));
          ASSERT_TRUE(jobs[1 - first].call(1, send(sent, 0)));
        });
    for (Job& job : jobs) job.synchronize();
    EXPECT_EQ(received[0], sent);
    EXPECT_EQ(received[1], sent);
  }
}

// A communicator's calls on several streams run in the order of issue.
TEST(TransfersOnDevices, ASendComesAfterTheCallBeforeItOnAnotherStream) {
  Job job({});
  Values data[2] = {Values(20, 1), Values(20, 1)}, received(20);
  std::atomic<bool> begin{false};
  job.stream(0).enqueue([&] { begin.wait(false); });
  together([&] { ASSERT_TRUE(job.call(0, sum(data[0]))); },
           [&] { ASSERT_TRUE(job.call(1, sum(data[1]))); });
  EmulatedStream other;
  Call sending = send(data[0], 1);
  sending.stream = &other;
  HeldCall held{&job.of(0), sending, nullptr};
  together(
      [&] {
        ASSERT_TRUE(run_on_devices({&held, 1}));
      },
      [&] { ASSERT_TRUE(job.call(1, receive(received, 0))); });
  EXPECT_TRUE(other.waits_for_an_event());
  begin = true;
  begin.notify_all();
  job.synchronize();
  EXPECT_THAT(received, Each(2));
  job.of(0).on_device()->drain();
}

TEST(TransfersOnDevices, WhatIsRefusedAfterAFinalizeTellsNobody) {
  Job job({});
  Values data(3);
  ASSERT_TRUE(job.of(0).finalize());
  const Status status = job.call(0, send(data, 1));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kInvalidUsage);
  EXPECT_FALSE(job.of(1).error());
}

TEST(TransfersOnDevices, EndsThatDifferAreToldToBoth) {
  for (const bool type_differs : {false, true}) {
    Job job({});
    Values sent(type_differs ? 70 : 60), received(70);
    Status statuses[2];
    together(
        [&] {
          statuses[0] =
              job.call(0, send(sent, 1, type_differs ? DataType::kFloat32 : DataType::kInt32));
        },
        [&] { statuses[1] = job.call(1, receive(received, 0)); });
    for (Rank rank = 0; rank < 2; ++rank) {
      const Status& status = statuses[rank];
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, Code::kInvalidUsage);
      EXPECT_THAT(status.error().message, HasSubstr("calls do not match: rank "));
      EXPECT_THAT(status.error().message, HasSubstr(type_differs ? "send of 70 float to rank 1"
                                                                 : "send of 60 int32 to rank 1"));
      EXPECT_THAT(status.error().message, HasSubstr("recv of 70 int32 from rank 0"));
      EXPECT_TRUE(job.of(rank).error());
    }
  }
}

TEST(TransfersOnDevices, WhoDoesNotCallInTimeIsNamed) {
  for (const bool sends : {true, false}) {
    Job job({.ranks = 3, .config = with(&Config::op_timeout_ns, 1'000'000)});
    Values data(10);
    const Status status = job.call(0, sends ? send(data, 2) : receive(data, 2));
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kTimeout);
    EXPECT_THAT(status.error().message, HasSubstr("rank 2 (pid"));
    EXPECT_THAT(status.error().message,
                HasSubstr(sends ? "send of 10 int32 to rank 2" : "recv of 10 int32 from rank 2"));
    for (Rank rank = 1; rank < 3; ++rank)
      EXPECT_TRUE(eventually([&] { return job.of(rank).error().has_value(); }));
  }
}

TEST(TransfersOnDevices, AWaitIsWarnedOf) {
  const Folder folder;
  const std::string log = folder.path() / "log";
  Job job({.config = with(&Config::warn_after_ns, 1'000'000, with(&Config::log_file, log))});
  Values sent(10, 4), received(10);
  const auto logged = [&] {
    std::stringstream all;
    all << std::ifstream(log).rdbuf();
    return all.str();
  };
  together(
      [&] { ASSERT_TRUE(job.call(1, receive(received, 0))); },
      [&] {
        EXPECT_TRUE(eventually([&] {
          return logged().find("recv of 10 int32 from rank 0 has waited 0 s for rank 0 (pid") !=
                 std::string::npos;
        })) << logged();
        ASSERT_TRUE(job.call(0, send(sent, 1)));
      });
  job.synchronize();
  EXPECT_EQ(received, sent);
}

TEST(TransfersOnDevices, WhoLeavesWithoutTheCallEndsIt) {
  Job job({});
  Values data(10);
  together(
      [&] {
        EXPECT_TRUE(eventually([&] { return job.of(0).call_slot().call() != nullptr; }));
        job.leave(1);
      },
      [&] {
        const Status status = job.call(0, receive(data, 1));
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().code, Code::kRemoteError);
        EXPECT_THAT(status.error().message,
                    HasSubstr("left the communicator without calling send of 10 int32 to "
                              "rank 0"));
      });
}

TEST(TransfersOnDevices, AnAbortEndsAWait) {
  Job job({});
  Values data(10);
  together(
      [&] {
        EXPECT_TRUE(eventually([&] { return job.of(0).call_slot().call() != nullptr; }));
        job.of(1).abort();
      },
      [&] {
        const Status status = job.call(0, send(data, 1));
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().code, Code::kRemoteError) << status.error().message;
      });
}

// The graph copies what is there at each replay.
TEST(TransfersOnDevices, AGraphOfBothStreamsReplaysTheCopy) {
  Job job({});
  Values sent(40, 1), received(40);
  EmulatedStream::Graph graph(1);
  for (Rank rank = 0; rank < 2; ++rank) job.stream(rank).record_into(&graph);
  HeldCall calls[] = {job.hold(0, send(sent, 1)), job.hold(1, receive(received, 0))};
  ASSERT_TRUE(run_on_devices(calls));
  for (Rank rank = 0; rank < 2; ++rank) job.stream(rank).record_into(nullptr);
  EXPECT_THAT(received, Each(0));
  for (const std::int32_t value : {8, 9}) {
    std::ranges::fill(sent, value);
    job.stream(0).replay(graph);
    job.synchronize();
    EXPECT_THAT(received, Each(value));
  }
}

TEST(TransfersOnDevices, GraphsOfTheirOwnAreRefusedAtBothEnds) {
  Job job({});
  Values sent(40, 1), received(40);
  EmulatedStream::Graph graph(1);
  job.stream(0).record_into(&graph);
  Status statuses[2];
  together([&] { statuses[0] = job.call(0, send(sent, 1)); },
           [&] { statuses[1] = job.call(1, receive(received, 0)); });
  job.stream(0).record_into(nullptr);
  for (const Status& status : statuses) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kNotSupported);
    EXPECT_THAT(status.error().message, HasSubstr("are not captured into one graph"));
  }
  for (Rank rank = 0; rank < 2; ++rank)
    EXPECT_THAT(job.of(rank).error()->message, HasSubstr("are not captured into one graph"));
}

}  // namespace
}  // namespace tutti::test
