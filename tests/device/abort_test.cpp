// SPDX-License-Identifier: Apache-2.0
// A rank of emulated devices aborts while the others' work waits for it: kernels of calls and of
// graphs, those behind them in their streams, and those that another program's blocks keep out.
// Nobody has a timeout, so only the abort can end them. hazards_test does the same on a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "comm/communicator.hpp"
#include "comm/run_on_devices.hpp"
#include "emulated_platform.hpp"

namespace tutti::test {
namespace {

constexpr std::size_t kCount = 1000;
constexpr int kRanks = 3, kBlocks = 12;
constexpr int kQueued = 50;  // calls or replays, one behind the other

class DeviceAbort : public testing::Test {
 protected:
  struct Member {
    std::unique_ptr<Communicator> communicator;
    EmulatedStream stream;
    std::vector<std::int32_t> input = std::vector<std::int32_t>(kCount, 1), output = input;
  };

  void start(int devices) {
    platform_ = std::make_unique<EmulatedPlatform>(
        EmulatedPlatform::Shape{.devices = devices, .blocks = kBlocks});
    const UniqueId id = *create_unique_id({.interfaces = "lo"});
    Config config;
    config.op_timeout_ns = 0;
    each([&](Rank rank, Member& self) {
      auto made = Communicator::create(
          id, rank, kRanks,
          {.config = config, .cancel = {}, .device = rank % devices, .platform = platform_.get()});
      ASSERT_TRUE(made) << made.error().message;
      self.communicator = *std::move(made);
    });
  }
  void TearDown() override {
    each([](Rank, Member& self) { self.communicator.reset(); });
  }
  // A thread for each rank.
  void each(const std::function<void(Rank, Member&)>& body) {
    std::vector<std::jthread> threads;
    for (Rank rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] { body(rank, members_[static_cast<std::size_t>(rank)]); });
  }
  static Status call(Member& self) {
    HeldCall held{self.communicator.get(),
                  {.collective = Collective::kAllReduce,
                   .input = self.input.data(),
                   .output = self.output.data(),
                   .count = kCount,
                   .type = DataType::kInt32,
                   .on_device = true,
                   .stream = &self.stream},
                  nullptr};
    return run_on_devices({&held, 1});
  }
  // One operation of all, which allocates.
  void call_all() {
    each([](Rank, Member& self) {
      EXPECT_TRUE(call(self));
      self.stream.synchronize();
    });
  }
  // A graph of one operation for each rank, of which the last rank's is not replayed.
  void replay_all_but_the_last() {
    each([&](Rank rank, Member& self) {
      EmulatedStream::Graph graph(static_cast<std::uint64_t>(rank) + 1);
      self.stream.record_into(&graph);
      EXPECT_TRUE(call(self)) << self.communicator->error()->message;
      self.stream.record_into(nullptr);
      for (int i = 0; i < kQueued && rank + 1 < kRanks; ++i) self.stream.replay(graph);
    });
  }
  // The last rank; the streams of the others run dry, and they know why.
  void abort_one() { members_.back().communicator->abort(); }
  void expect_the_others_ended() {
    each([](Rank rank, Member& self) {
      if (rank + 1 == kRanks) return;
      self.stream.synchronize();
      ASSERT_TRUE(self.communicator->error());
      EXPECT_EQ(self.communicator->error()->code, Code::kRemoteError);
      EXPECT_FALSE(call(self));
    });
  }

  std::unique_ptr<EmulatedPlatform> platform_;
  std::array<Member, kRanks> members_;
};

TEST_F(DeviceAbort, EndsCallsThatWaitInStreams) {
  start(kRanks);
  each([](Rank rank, Member& self) {
    for (int i = 0; i < kQueued && rank + 1 < kRanks; ++i) ASSERT_TRUE(call(self));
  });
  abort_one();
  expect_the_others_ended();
}

TEST_F(DeviceAbort, EndsCallsThatWaitForTheRankOnTheHost) {
  start(1);
  std::jthread one([this] { EXPECT_FALSE(call(members_[0])); });
  std::jthread other([this] { EXPECT_FALSE(call(members_[1])); });
  for (std::size_t i = 0; i < 2; ++i)
    while (members_[i].communicator->call_slot().call() == nullptr) std::this_thread::yield();
  abort_one();
  one.join();
  other.join();
  expect_the_others_ended();
}

TEST_F(DeviceAbort, EndsGraphsThatWait) {
  for (const int devices : {1, 2}) {
    start(devices);
    call_all();
    replay_all_but_the_last();
    abort_one();
    expect_the_others_ended();
    TearDown();
  }
}

// They begin after the abort.
TEST_F(DeviceAbort, EndsGraphsThatAnotherProgramKeepsOut) {
  start(1);
  call_all();
  platform_->hold_blocks(0, kBlocks);
  replay_all_but_the_last();
  abort_one();
  platform_->let_go_of_blocks(0, kBlocks);
  expect_the_others_ended();
}

}  // namespace
}  // namespace tutti::test
