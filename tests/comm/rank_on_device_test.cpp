// SPDX-License-Identifier: Apache-2.0
// Communicators on emulated devices: calls that differ, also in where their memory lies; what the
// board, the flight recorder and the log tell of calls that run after they have returned; calls on
// devices and on the host by turns.
#include "comm/rank_on_device.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "board/board_view.hpp"
#include "calls.hpp"
#include "emulated_job.hpp"
#include "model/machine_profile.hpp"

namespace tutti::test {
namespace {

const Call kThousand{.collective = Collective::kAllReduce, .count = 1000};

using ::testing::AnyOf;
using ::testing::HasSubstr;

struct Differing {
  const char* name;
  int devices;
  Call one, other;  // without buffers
  std::vector<std::string> named;
};
void PrintTo(const Differing& differing, std::ostream* to) { *to << differing.name; }

class CallsThatDiffer : public ::testing::TestWithParam<Differing> {};

TEST_P(CallsThatDiffer, EndWithAnErrorThatNamesBoth) {
  const Differing& differing = GetParam();
  std::vector<std::vector<std::int32_t>> data(2, std::vector<std::int32_t>(1000, 1));
  Job job({.devices = differing.devices});
  std::vector<Call> calls{differing.one, differing.other};
  for (std::size_t i = 0; i < 2; ++i) calls[i].input = calls[i].output = data[i].data();
  const auto statuses = job.call_all(calls);
  for (Rank rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(eventually([&] { return job.of(rank).error().has_value(); }));
    const Error error = *job.of(rank).error();
    EXPECT_EQ(error.code, Code::kInvalidUsage) << error.message;
    EXPECT_THAT(error.message, HasSubstr("calls do not match: rank "));
    for (const std::string& text : differing.named) EXPECT_THAT(error.message, HasSubstr(text));
    // What a call says, if it has not returned before, is the same.
    const Status& status = statuses[static_cast<std::size_t>(rank)];
    if (!status) {
      EXPECT_THAT(status.error().message, HasSubstr("calls do not match: rank "));
    }
    EXPECT_FALSE(job.call(rank, calls[static_cast<std::size_t>(rank)]));
  }
  job.synchronize();  // no kernel waits any more
}

Call of(std::uint64_t count, DataType type, bool on_device) {
  return {
      .collective = Collective::kAllReduce, .count = count, .type = type, .on_device = on_device};
}
constexpr DataType kInt = DataType::kInt32, kFloat = DataType::kFloat32;
INSTANTIATE_TEST_SUITE_P(
    All, CallsThatDiffer,
    ::testing::Values(
        Differing{"Count", 2, of(100, kInt, true), of(200, kInt, true), {"count 100", "count 200"}},
        Differing{"Type", 2, of(100, kInt, true), of(100, kFloat, true), {" int32", " float "}},
        Differing{"Memory", 2, of(100, kInt, true), of(100, kInt, false), {"on a device"}},
        Differing{"Nothing", 2, of(100, kInt, true), of(0, kInt, false), {"count 100", "count 0"}},
        Differing{"CountOnOne", 1, of(1, kInt, true), of(9, kInt, true), {"count 1 ", "count 9 "}},
        Differing{"MemoryOnOne", 1, of(100, kInt, true), of(100, kInt, false), {"on a device"}},
        Differing{
            "NothingOnOne", 1, of(7, kInt, true), of(0, kInt, false), {"count 7", "count 0"}}),
    [](const auto& chosen) { return chosen.param.name; });

// A rank may be further ahead than the board remembers.
TEST(RankOnDevice, ACallThatDiffersIsFoundHoweverFarTheOthersAreAhead) {
  std::vector<std::vector<std::int32_t>> data(2, std::vector<std::int32_t>(100, 1));
  Job job({});
  Call call = of(100, kInt, true);
  call.input = call.output = data[0].data();
  for (std::size_t i = 0; i < 2 * kRememberedOperations; ++i) ASSERT_TRUE(job.call(0, call));
  call.input = call.output = data[1].data();
  call.count = 7;
  static_cast<void>(job.call(1, call));
  for (Rank rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(eventually([&] { return job.of(rank).error().has_value(); }));
    EXPECT_THAT(job.of(rank).error()->message, HasSubstr("all_reduce #1 count 100 int32"));
    EXPECT_THAT(job.of(rank).error()->message, HasSubstr("all_reduce #1 count 7 int32"));
  }
  job.synchronize();
}

// Only the rank whose buffer it is can say so. A refused call is none: it may come again.
TEST(RankOnDevice, ABufferThatAPeersDeviceCannotReachIsRefusedUntilItHasAccess) {
  std::vector<std::vector<std::int32_t>> data(2, std::vector<std::int32_t>(1000, 1));
  Job job({});
  for (Rank rank = 0; rank < 2; ++rank)
    ASSERT_TRUE(job.of(rank).set_algorithm("two_shot:access=store"));
  auto& pool = job.platform().kept[data[0].data()];
  pool = {device::Allocation::kPool, 0, {0}};
  std::vector<Call> calls(2, of(1000, kInt, true));
  for (std::size_t i = 0; i < 2; ++i) calls[i].input = calls[i].output = data[i].data();
  const Status refused = job.call(0, calls[0]);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message,
              HasSubstr("sendbuff is memory of a pool of device 0 without access for device 1 "
                        "(cudaMemPoolSetAccess gives it), and rank 1 on device 1 uses it too"));
  pool.access = {0, 1};
  for (const Status& status : job.call_all(calls)) EXPECT_TRUE(status) << status.error().message;
  job.synchronize();
  EXPECT_EQ(data, std::vector(2, std::vector<std::int32_t>(1000, 2)));
}

// Numbers, gates and memory of both are apart.
TEST(RankOnDevice, CallsOnDevicesAndOnTheHostTakeTurns) {
  constexpr std::size_t kRounds = 40;
  std::vector<std::vector<std::int32_t>> data(3, std::vector<std::int32_t>(5000, 1));
  Job job({.ranks = 3, .devices = 2});
  std::int32_t want = 1;
  for (std::size_t round = 0; round < kRounds; ++round) {
    const bool on_device = round % 3 != 1;
    const std::size_t count = round % 2 == 0 ? 5000 : 50;
    if (round % 8 == 0) {
      for (auto& one : data) std::ranges::fill(one, want = 1);
    }
    std::vector<Call> calls;
    for (auto& one : data)
      calls.push_back({.collective = Collective::kAllReduce,
                       .input = one.data(),
                       .output = one.data(),
                       .count = count,
                       .type = kInt,
                       .on_device = on_device});
    for (const Status& status : job.call_all(calls))
      ASSERT_TRUE(status) << round << ": " << status.error().message;
    job.synchronize();
    want *= 3;
    for (const auto& one : data) EXPECT_EQ(one[0], want) << "round " << round;
    const Communicator::Info info = job.of(0).info();
    EXPECT_EQ(info.operations, round + 1);
  }
}

// One call of every rank, on devices or on the host; returns when it has ended.
void call_all(Job& job, std::vector<std::vector<std::int32_t>>& data, bool on_device) {
  std::vector<Call> calls;
  for (auto& one : data)
    calls.push_back({.collective = Collective::kAllReduce,
                     .input = one.data(),
                     .output = one.data(),
                     .count = one.size(),
                     .type = kInt,
                     .on_device = on_device});
  for (const Status& status : job.call_all(calls)) EXPECT_TRUE(status);
  job.synchronize();  // the host may have the buffers next
}

// Every collective that the host runs, by every algorithm that a device takes.
TEST(RankOnDevice, RunsEveryCollective) {
  using enum Collective;
  constexpr std::int32_t kRanks = 3;
  constexpr std::size_t kCount = 1000, kData = kCount * kRanks;
  Job job({.ranks = kRanks, .devices = 2});
  int runs = 0;
  for (const Collective collective :
       {kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kGather, kScatter, kAllToAll})
    for (const Algorithm* algorithm : all_algorithms()) {
      if (!algorithm->supports({.collective = collective, .ranks = kRanks})) continue;
      const std::string plan = fmt::format("{}:{}", name_of(collective), algorithm->name);
      const CallCase one{collective, kCount, /*root=*/1};
      std::vector<std::vector<std::int32_t>> in(kRanks), out(kRanks);
      std::vector<Call> calls;
      for (Rank rank = 0; rank < kRanks; ++rank) {
        ASSERT_TRUE(job.of(rank).set_algorithm(plan)) << plan;
        auto& own = in[static_cast<std::size_t>(rank)];
        for (std::size_t i = 0; i < kData; ++i) own.push_back(call_value(rank, i, 0));
        out[static_cast<std::size_t>(rank)].assign(kData, calls::kUntouched);
        const CollectiveInfo& info = info_of(collective);
        calls.push_back({.collective = collective,
                         .input = own.data() + info.first_element(info.input, kCount, rank),
                         .output = out[static_cast<std::size_t>(rank)].data() +
                                   info.first_element(info.output, kCount, rank),
                         .count = kCount,
                         .type = kInt,
                         .root = one.root,
                         .on_device = true});
      }
      for (const Status& status : job.call_all(calls))
        ASSERT_TRUE(status) << plan << ": " << status.error().message;
      job.synchronize();
      ++runs;
      for (Rank rank = 0; rank < kRanks; ++rank) {
        const Call& call = calls[static_cast<std::size_t>(rank)];
        const std::size_t begin = call.info().first_element(call.info().output, kCount, rank);
        const std::size_t end =
            begin +
            (call.has_output(rank) ? call.info().elements(call.info().output, kCount, kRanks) : 0);
        for (std::size_t i = 0; i < kData; ++i)
          ASSERT_EQ(out[static_cast<std::size_t>(rank)][i],
                    i >= begin && i < end
                        ? calls::wanted(one, rank, i, calls::CallValues{kRanks, one.salt})
                        : calls::kUntouched)
              << plan << " rank " << rank << " index " << i;
      }
    }
  EXPECT_GE(runs, 25);
}

TEST(RankOnDevice, InfoIsOfTheLastCallWhereverItsMemoryLies) {
  std::vector<std::vector<std::int32_t>> data(2, std::vector<std::int32_t>(1'000'000, 1));
  Job job({});
  for (Rank rank = 0; rank < 2; ++rank)
    ASSERT_TRUE(job.of(rank).set_algorithm("ring@slots:replicas=2:slot=4K"));
  for (const bool on_device : {true, false, true}) {
    call_all(job, data, on_device);
    const Communicator::Info info = job.of(0).info();
    EXPECT_EQ(info.last_algorithm, "ring");
    EXPECT_EQ(info.last_protocol, "slots");
    EXPECT_EQ(info.last_replicas, 2u);
    EXPECT_GT(info.last_slices, 100u);
  }
  for (Rank rank = 0; rank < 2; ++rank) ASSERT_TRUE(job.of(rank).set_algorithm("one_shot@flagged"));
  for (auto& one : data) one.resize(10);
  call_all(job, data, false);
  EXPECT_EQ(job.of(0).info().last_algorithm, "one_shot");
  job.synchronize();
}

TEST(RankOnDevice, ARankTakesNoMoreBlocksThanItsConfigurationSays) {
  std::vector<std::vector<std::int32_t>> data(2, std::vector<std::int32_t>(1000, 1));
  Job job({.blocks = {.most = 2}});
  call_all(job, data, true);
  EXPECT_THAT(*job.of(0).explain_on_device(kThousand), HasSubstr("on device 0, 2 blocks a rank"));
  job.synchronize();
}

TEST(RankOnDevice, WhatRunsOnADeviceIsExplained) {
  std::vector<std::vector<std::int32_t>> data(2, std::vector<std::int32_t>(1000, 1));
  Job job({});
  EXPECT_THAT(*job.of(1).explain_on_device(kThousand), HasSubstr("after the first call"));
  call_all(job, data, true);
  const std::string text = *job.of(1).explain_on_device(kThousand);
  EXPECT_THAT(text,
              HasSubstr("all_reduce of 4000 bytes among 2 ranks on device 1, 6 blocks a rank; "
                        "prices by priors for a block of an H100, not measured\n"));
  EXPECT_THAT(text, HasSubstr(fmt::format("\nruns {}@", job.of(1).info().last_algorithm)));
  EXPECT_THAT(text, ::testing::ContainsRegex(" in [1-6] blocks, [0-9]+ lanes\n"));
  EXPECT_THAT(text, HasSubstr(" runs\n"));
  ASSERT_TRUE(job.of(1).set_algorithm("ring@slots:replicas=1:slot=8K"));
  const std::string forced = *job.of(1).explain_on_device(kThousand);
  EXPECT_THAT(forced, HasSubstr("; forced: ring@slots:replicas=1:slot=8K\nruns ring@slots"));
  EXPECT_THAT(forced, ::testing::ContainsRegex("ring@slots:replicas=1:slot=8K +runs\n"));
  job.synchronize();
}

// Rank 0's profile prices the calls of all.
TEST(RankOnDevice, AProfileOfTheDeviceTakesThePriorsPlace) {
  const Folder folder;
  const std::string path = folder.path() / "p.json";
  const auto explained = [&](const MachineProfile& profile) {
    EXPECT_TRUE(write_profile(profile, path));
    std::vector<std::vector<std::int32_t>> data(2, std::vector<std::int32_t>(1000, 1));
    Job job({.config = with(&Config::profile, path)});
    call_all(job, data, true);
    job.synchronize();
    return *job.of(1).explain_on_device(kThousand);
  };
  MachineProfile profile{.machine = describe_machine(), .created = "2026-11-25", .measured = {}};
  const std::string prior = explained(profile);
  EXPECT_THAT(prior, HasSubstr("prices by priors for a block of an H100, not measured\n"));
  EXPECT_THAT(prior, ::testing::ContainsRegex("\nruns [a-z_:=0-9]+@ll"));
  profile.device = DeviceProfile{.name = "a GPU", .costs = kPriorDeviceCosts};
  profile.device->costs.packets.alpha_ns = 1e6;
  const std::string measured = explained(profile);
  EXPECT_THAT(measured, HasSubstr("prices by the profile " + fingerprint_of(describe_machine()) +
                                  " of 2026-11-25, measured on a GPU\n"));
  EXPECT_THAT(measured, ::testing::Not(::testing::ContainsRegex("\nruns [a-z_:=0-9]+@ll")));
}

control::BoardView read_flight(const Folder& folder) {
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    const UniqueFd fd(::open(file.path().c_str(), O_RDONLY | O_CLOEXEC));
    auto view = control::read_board(fd.get(), file.path().c_str());
    EXPECT_TRUE(view) << view.error().message;
    if (view) return *view;
  }
  ADD_FAILURE() << "no flight recorder's file";
  return {};
}

TEST(RankOnDevice, TheBoardKnowsOfCallsUntilTheyHaveEnded) {
  const Folder folder;
  std::vector<std::int32_t> data(100, 1), other(100, 1);
  Job job({.config = with(&Config::flight_dir, folder.path().string())});
  const Call call{.collective = Collective::kAllReduce,
                  .input = data.data(),
                  .output = data.data(),
                  .count = 100,
                  .type = kInt,
                  .on_device = true};
  Call late = call;
  late.input = late.output = other.data();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(job.call(0, call));
  // Rank 0 is in the first of its calls and waits for rank 1.
  ASSERT_TRUE(eventually([&] { return read_flight(folder).find(0)->wait.has_value(); }));
  control::BoardView view = read_flight(folder);
  EXPECT_EQ(view.find(0)->entered, 3u);
  EXPECT_EQ(view.find(0)->current(), 1u);
  EXPECT_EQ(view.find(0)->wait->peer, 1);
  EXPECT_THAT(view.find(0)->nonsense, ::testing::IsEmpty());
  EXPECT_THAT(view.find(0)->operation(1)->signature.to_string(),
              HasSubstr("all_reduce #1 count 100 int32 sum on a device plan "));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(job.call(1, late));
  ASSERT_TRUE(eventually([&] {
    view = read_flight(folder);
    return !view.find(0)->inside() && !view.find(1)->inside();
  }));
  EXPECT_EQ(view.find(0)->left, 3u);
  EXPECT_FALSE(view.find(0)->wait);
  EXPECT_NE(view.find(0)->left_ns, 0);
}

// A graph's kernels are not the host's to count: the call is over when it is made.
TEST(RankOnDevice, ACapturedCallIsOverForTheBoard) {
  const Folder folder;
  std::vector<std::vector<std::int32_t>> data(2, std::vector<std::int32_t>(100, 1));
  Job job({.config = with(&Config::flight_dir, folder.path().string())});
  job.capture(7);
  std::vector<Call> calls;
  for (auto& one : data)
    calls.push_back({.collective = Collective::kAllReduce,
                     .input = one.data(),
                     .output = one.data(),
                     .count = 100,
                     .type = kInt,
                     .on_device = true});
  for (const Status& status : job.call_all(calls)) ASSERT_TRUE(status);
  EXPECT_TRUE(eventually([&] { return read_flight(folder).find(0)->left == 1; }));
  job.synchronize();
}

TEST(RankOnDevice, ACallWithoutProgressIsWarnedOf) {
  const Folder folder;
  const std::string log = folder.path() / "log";
  std::vector<std::int32_t> data(100, 1);
  Job job({.config = with(&Config::warn_after_ns, 1'000'000, with(&Config::log_file, log))});
  ASSERT_TRUE(job.call(0, {.collective = Collective::kAllReduce,
                           .input = data.data(),
                           .output = data.data(),
                           .count = 100,
                           .type = kInt,
                           .on_device = true}));
  std::string text;
  EXPECT_TRUE(eventually([&] {
    std::stringstream all;
    all << std::ifstream(log).rdbuf();
    text = all.str();
    return text.find("all_reduce #1 count 100 int32 sum on a device") != std::string::npos &&
           text.find(" has not called it") != std::string::npos;
  })) << text;
  EXPECT_THAT(text, HasSubstr("has not ended for 0 s; rank 1 (pid"));
  job.of(1).abort();
}

TEST(RankOnDevice, WhoLeavesWithoutTheCallEndsIt) {
  std::vector<std::int32_t> data(100, 1);
  Job job({});
  ASSERT_TRUE(job.call(0, {.collective = Collective::kAllReduce,
                           .input = data.data(),
                           .output = data.data(),
                           .count = 100,
                           .type = kInt,
                           .on_device = true}));
  job.leave(1);
  ASSERT_TRUE(eventually([&] { return job.of(0).error().has_value(); }));
  EXPECT_EQ(job.of(0).error()->code, Code::kRemoteError);
  EXPECT_THAT(job.of(0).error()->message,
              HasSubstr("left the communicator without calling all_reduce #1"));
  job.synchronize();
}

// As tutti-info finds it: on a board of this process.
std::optional<KernelFault> fault_on_a_board() {
  for (int fd = 3; fd < 1024; ++fd) {
    const auto board = control::read_board(fd, "");
    if (!board) continue;
    for (const control::RankView& rank : board->here)
      if (rank.fault) return rank.fault;
  }
  return std::nullopt;
}

struct RootThatDoesNotCall {
  const char* algorithm;
  Rank calling;  // so many other ranks call
};
void PrintTo(const RootThatDoesNotCall& one, std::ostream* to) { *to << one.algorithm; }

class RanksThatCall : public ::testing::TestWithParam<RootThatDoesNotCall> {};

// The kernel's own patience; the root, which did not call, is to blame on every rank. Where it
// sends to each, nobody waits for another: one that has not called either is no cause. In a ring
// rank 1 waits for rank 0, which has called.
TEST_P(RanksThatCall, NameWhoDoesNotCallInTimeToAll) {
  const auto& [algorithm, calling] = GetParam();
  std::vector<std::vector<std::int32_t>> data(2, std::vector<std::int32_t>(100, 1));
  Job job({.ranks = 3, .devices = 3, .config = with(&Config::op_timeout_ns, 1'000'000)});
  for (Rank rank = 0; rank < calling; ++rank) {
    ASSERT_TRUE(job.of(rank).set_algorithm(algorithm));
    auto& own = data[static_cast<std::size_t>(rank)];
    static_cast<void>(job.call(rank, {.collective = Collective::kBroadcast,
                                      .input = own.data(),
                                      .output = own.data(),
                                      .count = 100,
                                      .type = kInt,
                                      .root = 2,
                                      .on_device = true}));
  }
  for (Rank rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(eventually([&] { return job.of(rank).error().has_value(); }));
    EXPECT_EQ(job.of(rank).error()->code, Code::kTimeout);
    EXPECT_THAT(job.of(rank).error()->message, HasSubstr("rank 2 (pid"));
    EXPECT_THAT(job.of(rank).error()->message, HasSubstr("during broadcast #1 count 100"));
  }
  EXPECT_TRUE(eventually([] { return fault_on_a_board().has_value(); }));
  const KernelFault fault = fault_on_a_board().value();
  EXPECT_THAT(fault.peer, AnyOf(2, std::string_view(algorithm) == "ring" ? 0 : 2));
  EXPECT_TRUE(fault.receives);
  EXPECT_NE(fault.expected, fault.seen);
  job.synchronize();
}
INSTANTIATE_TEST_SUITE_P(RankOnDevice, RanksThatCall,
                         ::testing::Values(RootThatDoesNotCall{"one_shot", 1},
                                           RootThatDoesNotCall{"one_shot", 2},
                                           RootThatDoesNotCall{"ring", 2}),
                         [](const auto& chosen) {
                           return fmt::format("{}_{}", chosen.param.algorithm,
                                              chosen.param.calling);
                         });

}  // namespace
}  // namespace tutti::test
