// SPDX-License-Identifier: Apache-2.0
// The communicator itself, where the C API's handle would be in the way: abort while the user's
// thread is inside a call.
#include "comm/communicator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "board/faults.hpp"
#include "comm/run_operations.hpp"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

TEST(Abort, EndsTheCallOfTheUsersThread) {
  const auto id = create_unique_id();
  ASSERT_TRUE(id) << id.error().message;
  std::thread other([&] {
    const auto communicator = Communicator::create(*id, 1, 2, {});
    ASSERT_TRUE(communicator) << communicator.error().message;
    while (!(*communicator)->error()) std::this_thread::yield();  // never calls
    EXPECT_THAT((*communicator)->error()->message, HasSubstr("rank 0 (pid"));
  });
  {
    const auto communicator = Communicator::create(*id, 0, 2, {});
    ASSERT_TRUE(communicator) << communicator.error().message;
    float data = 1;
    HeldCall call{
        communicator->get(),
        {.collective = Collective::kAllReduce, .input = &data, .output = &data, .count = 1},
        nullptr};
    std::thread user([&] {
      const Status status = run_operations({&call, 1});
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, Code::kRemoteError);
      EXPECT_EQ(status.error().culprit, 0);
    });
    (*communicator)->abort();
    user.join();
  }
  other.join();
}

// Joins three ranks, of which the last has a configuration of its own, and returns their errors.
std::vector<Error> join_differently(const Config& usual, const Config& other) {
  const UniqueId id = *create_unique_id({.interfaces = "lo"});
  std::vector<Error> errors(3);
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      const auto made =
          Communicator::create(id, rank, 3, {.config = rank == 2 ? other : usual, .cancel = {}});
      if (!made) errors[static_cast<std::size_t>(rank)] = made.error();
    });
  for (std::thread& rank : ranks) rank.join();
  return errors;
}

TEST(Settings, ADifferenceIsNamedOnEveryRankWithBothValues) {
  struct Case {
    std::function<void(Config&)> change;
    std::string what, value;
  };
  const Case cases[] = {
      {[](Config& c) { c.arena_bytes = 1 << 20; },
       "TUTTI_ARENA_BYTES differs between ranks: ", "1048576"},
      {[](Config& c) { c.slot_bytes = 4096; }, "TUTTI_SLOT_BYTES differs between ranks: auto",
       "4096"},
      {[](Config& c) { c.slots = 3; }, "TUTTI_SLOTS differs between ranks: auto", "3"},
      {[](Config& c) { c.replicas = 2; }, "TUTTI_REPLICAS differs between ranks: auto", "2"},
      {[](Config& c) { c.slices = 5; }, "TUTTI_SLICES differs between ranks: auto", "5"},
      {[](Config& c) { c.algo = "tree"; }, "algorithm) differs between ranks: auto", "tree"},
      {[](Config& c) { c.protocol = ProtocolChoice::kSlots; },
       "TUTTI_PROTO differs between ranks: auto", "slots"}};
  for (const Case& one : cases) {
    Config other;
    one.change(other);
    for (const Error& error : join_differently({}, other)) {
      EXPECT_EQ(error.code, Code::kInvalidUsage);
      EXPECT_THAT(error.message, HasSubstr(one.what));
      EXPECT_THAT(error.message, HasSubstr(" at rank 0 (pid"));
      EXPECT_THAT(error.message, HasSubstr(one.value + " at rank 2 (pid"));
    }
  }
}

TEST(PoisonError, OfADeathSaysWhatTheDeadRankWasIn) {
  const std::vector<PeerInfo> peers{{.rank = 0, .pid = 7, .host = "node1"}};
  Poison death{.culprit = 0, .reporter = 0, .kind = Poison::Kind::kDeath};
  EXPECT_EQ(poison_error(death, peers).message,
            "rank 0 (pid 7 on node1) died; abort the communicator");
  death.theirs = {.operation = 11, .collective = Collective::kAllReduce, .count = 3};
  EXPECT_THAT(poison_error(death, peers).message,
              HasSubstr("; it had left all_reduce #11 count 3"));
  death.mine = {.operation = 12, .collective = Collective::kAllReduce, .count = 3};
  EXPECT_THAT(poison_error(death, peers).message, HasSubstr("; it was in all_reduce #12 count 3"));
}

TEST(PoisonError, OfABrokenConnectionSaysWhyToWhomThatIsKnown) {
  const std::vector<PeerInfo> peers{{.rank = 0, .pid = 7, .host = "node1"},
                                    {.rank = 1, .pid = 7, .host = "node2"}};
  const Poison cut{.culprit = 1, .reporter = 0, .kind = Poison::Kind::kCut};
  const std::string what = "rank 0 (pid 7 on node1) lost its connection to rank 1 (pid 7 on node2)";
  EXPECT_EQ(poison_error(cut, peers).message,
            what + "; see its log, and check the network between them");
  EXPECT_EQ(poison_error(cut, peers, "Connection reset by peer").message,
            what + ": Connection reset by peer");
  Poison refused = cut;
  refused.kind = Poison::Kind::kNoWay;
  EXPECT_EQ(poison_error(refused, peers, "Connection refused").message,
            "rank 0 (pid 7 on node1) could not connect to rank 1 (pid 7 on node2): Connection "
            "refused");
}

// More plans than are kept: what those that go have sent is not forgotten with them.
TEST(Info, CountsWhatPlansThatAreGoneHaveSent) {
  constexpr int kPlans = 600;  // of which 512 are kept
  const UniqueId id = *create_unique_id({.interfaces = "lo"});
  const auto rank = [&](Rank own) {
    const auto made = Communicator::create(id, own, 2, {.config = {}, .cancel = {}});
    ASSERT_TRUE(made) << made.error().message;
    Communicator& communicator = **made;
    for (int i = 1; i <= kPlans; ++i) {
      const auto slot = std::to_string(64 * (i + 1));
      ASSERT_TRUE(communicator.set_algorithm("ring@slots:replicas=1:slot=" + slot));
      float data[4] = {1, 1, 1, 1};
      HeldCall call{
          &communicator,
          {.collective = Collective::kAllReduce, .input = data, .output = data, .count = 4},
          nullptr};
      ASSERT_TRUE(run_operations({&call, 1}));
      // A ring of two sends as much as it reduces.
      ASSERT_EQ(communicator.info().payload_bytes_sent,
                static_cast<std::uint64_t>(i) * sizeof data);
    }
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
}

}  // namespace
}  // namespace tutti::test
