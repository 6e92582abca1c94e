// SPDX-License-Identifier: Apache-2.0
// Ranks of one process on emulated devices: every algorithm through choice, plans in device memory
// and launches; ranks as threads and in one call; several devices; plans that take turns; captures
// that are replayed; blocks and queues; who does not come, calls another thing, or aborts.
#include "device/job.hpp"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <numeric>
#include <random>
#include <thread>

#include "device/executor.hpp"
#include "emulated_platform.hpp"
#include "tests/algorithms/direct_forms.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

using device::Executor;
using device::Issue;
using device::Job;
using testing::HasSubstr;

constexpr std::uint64_t kArena = 256 << 10;
constexpr std::int64_t kLongNs = 60'000'000'000;

Status submit(Job& job, std::span<const Issue> issues, std::int64_t timeout_ns) {
  TUTTI_TRY_ASSIGN(const Job::Ticket ticket, job.enqueue(issues));
  return job.await(ticket, timeout_ns);
}

// A communicator's ranks, each with its stream and buffers.
class Ranks {
 public:
  explicit Ranks(EmulatedPlatform& platform, std::int32_t count, int devices = 1,
                 std::uint64_t timeout_ns = 0) {
    SessionId key{};
    key[0] = static_cast<std::byte>(++jobs_made);
    for (Rank rank = 0; rank < count; ++rank) {
      auto job = Job::join(platform, key, rank, count, rank % devices, kArena);
      EXPECT_TRUE(job) << job.error().message;
      job_ = *job;
    }
    const Status prepared = job_->prepare();
    EXPECT_TRUE(prepared) << prepared.error().message;
    if (!prepared) return;
    for (Rank rank = 0; rank < count; ++rank) {
      executors_.push_back(std::make_unique<Executor>(job_, rank, timeout_ns));
      streams_.push_back(std::make_unique<EmulatedStream>());
    }
  }

  [[nodiscard]] Job& job() { return *job_; }
  [[nodiscard]] std::size_t size() const { return executors_.size(); }
  [[nodiscard]] Executor& executor(std::size_t rank) { return *executors_[rank]; }
  [[nodiscard]] EmulatedStream& stream(std::size_t rank) { return *streams_[rank]; }

  // Streams of their own, in the captures of these numbers.
  void capture(const std::vector<std::uint64_t>& captures) {
    for (std::size_t rank = 0; rank < size(); ++rank)
      streams_[rank] = std::make_unique<EmulatedStream>(captures[rank]);
  }

  // New inputs; what every output must be.
  std::vector<std::int32_t> fill(std::size_t count, std::mt19937& random) {
    std::vector<std::int32_t> want(count, 0);
    inputs_.assign(size(), std::vector<std::int32_t>(count));
    outputs_.assign(size(), std::vector<std::int32_t>(count, -1));
    for (auto& input : inputs_)
      for (std::size_t i = 0; i < count; ++i) {
        input[i] = static_cast<std::int32_t>(random() % 1000);
        want[i] += input[i];
      }
    return want;
  }
  [[nodiscard]] Result<Issue> issue(std::size_t rank, const Forced& forced) {
    return executors_[rank]->prepare({.collective = Collective::kAllReduce,
                                      .input = inputs_[rank].data(),
                                      .output = outputs_[rank].data(),
                                      .count = inputs_[rank].size(),
                                      .type = DataType::kInt32,
                                      .stream = streams_[rank].get()},
                                     forced);
  }
  // All ranks' calls by this thread.
  [[nodiscard]] Status call_together(const Forced& forced) {
    std::vector<Issue> issues;
    for (std::size_t rank = 0; rank < size(); ++rank) {
      TUTTI_TRY_ASSIGN(Issue one, issue(rank, forced));
      issues.push_back(one);
    }
    return submit(*job_, issues, kLongNs);
  }
  // A thread for each rank but those that are absent; their statuses.
  std::vector<Status> call_apart(const Forced& forced, std::int64_t timeout_ns = kLongNs,
                                 std::size_t absent = ~std::size_t{0}) {
    std::vector<Status> statuses(size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t rank = 0; rank < size(); ++rank)
        if (rank != absent)
          threads.emplace_back([&, rank] {
            const Result<Issue> one = issue(rank, forced);
            statuses[rank] =
                one ? submit(*job_, {&*one, 1}, timeout_ns) : tl::unexpected(one.error());
          });
    }
    return statuses;
  }
  void synchronize() {
    for (const auto& stream : streams_) stream->synchronize();
  }
  void expect(const std::vector<std::int32_t>& want, std::string_view what) {
    synchronize();
    for (std::size_t rank = 0; rank < size(); ++rank) {
      EXPECT_EQ(outputs_[rank], want) << "rank " << rank << ", " << what;
    }
    EXPECT_FALSE(job_->fault()) << what;
  }
  [[nodiscard]] std::vector<std::vector<std::int32_t>>& inputs() { return inputs_; }
  [[nodiscard]] std::vector<std::vector<std::int32_t>>& outputs() { return outputs_; }

 private:
  static inline int jobs_made = 0;
  std::shared_ptr<Job> job_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<std::unique_ptr<EmulatedStream>> streams_;
  std::vector<std::vector<std::int32_t>> inputs_, outputs_;
};

Forced forced(std::string_view name) { return *parse_forced(name); }

std::mt19937 seeded() {
  const unsigned seed = draw_seed();
  return std::mt19937(seed);
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const Algorithm* const algorithm : all_algorithms())
    for (const char* const protocol :
         {"", "@cells", "@ll8", "@ll16:replicas=2", "@ll128", "@slots:replicas=2:slot=4K"})
      names.push_back(std::string(algorithm->name) + protocol);
  for (const Algorithm* const algorithm : test::direct_forms(Collective::kAllReduce))
    names.emplace_back(algorithm->name);
  return names;
}

class EveryAlgorithm : public testing::TestWithParam<std::string> {};

TEST_P(EveryAlgorithm, SumsOnDevices) {
  std::mt19937 random = seeded();
  EmulatedPlatform platform({.threads = 2});
  for (const std::int32_t count : {1, 2, 3, 5}) {
    Ranks ranks(platform, count, 1 + static_cast<int>(random() % 2));
    for (const std::size_t elements : {std::size_t{1}, std::size_t{777}, std::size_t{30'000}}) {
      const auto want = ranks.fill(elements, random);
      const Status called = ranks.call_together(forced(GetParam()));
      ASSERT_TRUE(called) << called.error().message;
      ranks.expect(want, fmt::format("{} of {}, {} elements", GetParam(), count, elements));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, EveryAlgorithm, testing::ValuesIn(all_names()),
                         [](const testing::TestParamInfo<std::string>& chosen) {
                           std::string name = chosen.param;
                           std::ranges::replace_if(
                               name, [](char letter) { return std::isalnum(letter) == 0; }, '_');
                           return name;
                         });

// A program that calls with ever other sizes must not grow without bound.
TEST(DeviceJob, RemembersTheChoiceOfABoundedNumberOfSizes) {
  EmulatedPlatform platform({.threads = 1});
  Ranks ranks(platform, 1, 1);
  std::mt19937 random = seeded();
  for (std::size_t count = 1; count <= Executor::kMostChosen + 88; ++count) {
    static_cast<void>(ranks.fill(count, random));
    const Result<device::Issue> issue = ranks.issue(0, {});
    ASSERT_TRUE(issue) << issue.error().message;
    EXPECT_LE(ranks.executor(0).chosen(), Executor::kMostChosen);
  }
  EXPECT_EQ(ranks.executor(0).chosen(), Executor::kMostChosen);
}

// Plans of all formats take turns over the same memory, many operations enqueued before any ends.
TEST(DeviceJob, PlansTakeTurns) {
  std::mt19937 random = seeded();
  EmulatedPlatform platform({});
  Ranks ranks(platform, 4, 2);
  const std::vector<std::string> names = all_names();
  for (int round = 0; round < 40; ++round) {
    const auto want = ranks.fill(1 + random() % 3000, random);
    const std::string& name = names[random() % names.size()];
    for (int again = 0; again < 3; ++again) ASSERT_TRUE(ranks.call_together(forced(name)));
    ranks.expect(want, name);
  }
}

// The default stream of a thread has one handle in all threads. Each rank's holds back its input,
// and then copies its output.
TEST(DeviceJob, EachRanksThreadHasADefaultStreamOfItsOwn) {
  std::mt19937 random = seeded();
  EmulatedPlatform platform({});
  Ranks ranks(platform, 2);
  for (const std::size_t held : {0, 1}) {
    const auto want = ranks.fill(300, random);
    std::vector<std::vector<std::int32_t>> inputs(2), copies(2);
    std::latch first_came(1);
    std::atomic<bool> go{false};
    std::vector<EmulatedStream*> streams(2);
    {
      std::vector<std::jthread> threads;
      for (std::size_t rank = 0; rank < 2; ++rank)
        threads.emplace_back([&, rank] {
          EmulatedStream& own = platform.of(EmulatedPlatform::kPerThread);
          streams[rank] = &own;
          std::swap(inputs[rank], ranks.inputs()[rank]);
          ranks.inputs()[rank].resize(300);
          own.enqueue([&, rank] {
            if (rank == held) go.wait(false);
            std::ranges::copy(inputs[rank], ranks.inputs()[rank].data());
          });
          if (rank == 1) first_came.wait();
          Issue issue = *ranks.issue(rank, {});
          issue.stream = EmulatedPlatform::kPerThread;
          const auto ticket = ranks.job().enqueue({&issue, 1});
          if (rank == 0) first_came.count_down();
          ASSERT_TRUE(ticket);
          EXPECT_TRUE(ranks.job().await(*ticket, kLongNs));
          own.enqueue([&, rank] { copies[rank] = ranks.outputs()[rank]; });
        });
    }
    EXPECT_TRUE(streams[1 - held]->waits_for_an_event()) << "rank " << held << " is held back";
    go = true;
    go.notify_all();
    for (EmulatedStream* const stream : streams) stream->synchronize();
    EXPECT_THAT(copies, testing::Each(want));
  }
}

// Two streams, one after the other, at the same handle.
TEST(DeviceJob, AStreamIsNoOtherOneThatHadItsHandle) {
  std::mt19937 random = seeded();
  EmulatedPlatform platform({});
  Ranks ranks(platform, 2, 2);
  const auto want = ranks.fill(300, random);
  const auto call = [&](std::size_t rank) {
    const Issue issue = *ranks.issue(rank, forced("ring@slots"));
    return submit(ranks.job(), {&issue, 1}, kLongNs);
  };
  ASSERT_TRUE(call(0));
  ranks.stream(0).remake();
  ASSERT_TRUE(call(0));
  EXPECT_TRUE(ranks.stream(0).waits_for_an_event()) << "an operation runs beside another";
  for (int again = 0; again < 2; ++again) ASSERT_TRUE(call(1));
  ranks.expect(want, "twice");
}

TEST(DeviceJob, RanksOfADeviceAreOneLaunchWhateverTheOrderOfTheirThreads) {
  std::mt19937 random = seeded();
  EmulatedPlatform platform({});
  Ranks ranks(platform, 4);
  for (int round = 0; round < 20; ++round) {
    const auto want = ranks.fill(500, random);
    for (const Status& status : ranks.call_apart({})) EXPECT_TRUE(status);
    ranks.expect(want, "threads");
  }
  EXPECT_EQ(platform.launches(), 20);
}

// The emulated device is as finite as a real one: where another program holds so many blocks that
// those of an operation cannot all be resident, they wait for each other until the timeout, which
// says at what. With one block fewer held the same launch runs.
TEST(DeviceJob, BlocksThatAreNotResidentEndInATimeout) {
  std::mt19937 random = seeded();
  constexpr int kBlocks = 8, kRanks = 4;  // one block each
  for (const bool enough : {true, false}) {
    EmulatedPlatform platform({.blocks = kBlocks});
    Ranks ranks(platform, kRanks, 1, enough ? 0 : 50'000'000);
    const int held = kBlocks - kRanks + (enough ? 0 : 1);
    platform.hold_blocks(0, held);
    const auto want = ranks.fill(500, random);
    ASSERT_TRUE(ranks.call_together(forced("ring@slots:replicas=1")));
    ranks.synchronize();
    const auto fault = ranks.job().fault();
    EXPECT_EQ(fault.has_value(), !enough);
    if (fault) {
      EXPECT_EQ(fault->what.fault, device::Fault::kTimeout);
      EXPECT_NE(fault->what.place.expected, fault->what.place.seen);  // a message, or a credit
    } else {
      ranks.expect(want, "with just enough blocks");
    }
    platform.let_go_of_blocks(0, held);
  }
}

TEST(DeviceJob, BuffersThatTheDeviceCannotReachAreRefused) {
  std::mt19937 random = seeded();
  EmulatedPlatform platform({});
  Ranks ranks(platform, 2);
  static_cast<void>(ranks.fill(10, random));
  for (auto* const buffers : {&ranks.inputs(), &ranks.outputs()}) {
    platform.kept = {{(*buffers)[1].data(), {device::Allocation::kUsual, 7, {}}}};
    EXPECT_TRUE(ranks.issue(0, {}));
    const Result<device::Issue> refused = ranks.issue(1, {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_THAT(refused.error().message,
                HasSubstr("is memory of device 7, and rank 1 uses device 0; allocate it there"));
  }
}

// A pool's memory and a mapping are for the devices to which the program gave access. Peers touch a
// rank's buffers in direct plans only.
TEST(DeviceJob, BuffersThatAPeersDeviceCannotReachAreRefusedInDirectPlans) {
  using device::Allocation;
  std::mt19937 random = seeded();
  EmulatedPlatform platform({.devices = 2});
  Ranks ranks(platform, 3, 2);
  const std::pair<Allocation, const char*> kinds[] = {
      {Allocation::kPool,
       "memory of a pool of device 0 without access for device 1 "
       "(cudaMemPoolSetAccess gives it)"},
      {Allocation::kMapping,
       "memory mapped on device 0 without access for device 1 (cuMemSetAccess gives it)"}};
  for (const auto& [allocation, words] : kinds)
    for (const char* const direct : {"two_shot:access=remote", "two_shot:access=store"}) {
      const auto want = ranks.fill(1000, random);
      for (const auto& [name, buffer] : {std::pair{"sendbuff", ranks.inputs()[0].data()},
                                         std::pair{"recvbuff", ranks.outputs()[0].data()}}) {
        platform.kept = {{buffer, {allocation, 0, {0}}}};
        const Result<Issue> refused = ranks.issue(0, forced(direct));
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
        EXPECT_THAT(refused.error().message,
                    HasSubstr(fmt::format("{} is {}, and rank 1 on device 1 uses it too in {}",
                                          name, words, direct)));
        EXPECT_TRUE(ranks.issue(0, forced("ring@slots")));
      }
      platform.kept = {{ranks.inputs()[0].data(), {allocation, 0, {0, 1}}},
                       {ranks.outputs()[0].data(), {allocation, 0, {0, 1}}}};
      const Status called = ranks.call_together(forced(direct));
      ASSERT_TRUE(called) << called.error().message;
      ranks.expect(want, direct);
    }
}

// Among ranks of one device nobody else touches them; and memory of another device's pool is as
// good as its own to a device that has access.
TEST(DeviceJob, BuffersOfAPoolAreUsedWhereverTheDeviceHasAccess) {
  std::mt19937 random = seeded();
  EmulatedPlatform platform({.devices = 1});
  Ranks ranks(platform, 2);
  for (const char* const name : {"auto", "two_shot:access=store", "ring@slots"}) {
    const auto want = ranks.fill(1000, random);
    for (const int owner : {0, 7})
      platform.kept[ranks.inputs()[owner == 7].data()] = {device::Allocation::kPool, owner, {0}};
    const Status called = ranks.call_together(forced(name));
    ASSERT_TRUE(called) << called.error().message;
    ranks.expect(want, name);
  }
}

TEST(DeviceJob, AsManyRanksShareADeviceAsItHasBlocks) {
  std::mt19937 random = seeded();
  EmulatedPlatform platform({.blocks = 24});
  Ranks ranks(platform, 24);
  for (const char* const name : {"auto", "ring@slots", "tree@flagged"}) {
    const auto want = ranks.fill(2000, random);
    const Status called = ranks.call_together(forced(name));
    ASSERT_TRUE(called) << called.error().message;
    ranks.expect(want, name);
  }
  EXPECT_EQ(platform.launches(), 3);
}

// What a graph does: the same tasks again, without the host; here and there an ordinary call.
TEST(DeviceJob, TasksCanBeReplayed) {
  std::mt19937 random = seeded();
  EmulatedPlatform platform({});
  Ranks ranks(platform, 3);
  const auto want = ranks.fill(2000, random);
  std::vector<Issue> captured;
  std::vector<device::LaunchTask> tasks;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    captured.push_back(*ranks.issue(rank, forced("ring@slots")));
    tasks.push_back(captured.back().task);
  }
  for (int replay = 0; replay < 10; ++replay) {
    for (auto& output : ranks.outputs()) std::ranges::fill(output, -1);
    if (replay % 3 == 2) {
      ASSERT_TRUE(ranks.call_together(forced("tree@flagged")));
    } else {
      ASSERT_TRUE(
          platform.launch({.stream = &ranks.stream(0),
                           .type = DataType::kInt32,
                           .blocks_each = std::ranges::max(captured, {}, &Issue::blocks).blocks,
                           .common = captured[0].common,
                           .tasks = tasks}));
    }
    ranks.expect(want, "replay");
  }
}

TEST(DeviceJob, CallsOfOneCaptureAreOneLaunchOthersRunBesideEachOther) {
  std::mt19937 random = seeded();
  EmulatedPlatform platform({});
  Ranks ranks(platform, 4, 2);
  int launches = 0;
  for (const std::vector<std::uint64_t>& captures :
       {std::vector<std::uint64_t>{7, 7, 7, 7}, {5, 6, 5, 6}, {1, 2, 3, 4}}) {
    ranks.capture(captures);
    const auto want = ranks.fill(1500, random);
    const Status called = ranks.call_together({});
    ASSERT_TRUE(called) << called.error().message;
    ranks.expect(want, "captured");
    launches += captures[0] == captures[2] ? 2 : 4;  // on two devices
    EXPECT_EQ(platform.launches(), launches);
  }
  for (const Status& status : ranks.call_apart({})) EXPECT_TRUE(status);  // waits for nobody
  ranks.synchronize();
  EXPECT_EQ(platform.launches(), launches + 4);
}

// Of all communicators that share the device.
TEST(DeviceJob, MoreGraphsThanADeviceHasQueuesAreRefused) {
  std::mt19937 random = seeded();
  EmulatedPlatform platform({.blocks = 40, .queues = 7});
  auto first = std::make_unique<Ranks>(platform, 4);
  Ranks second(platform, 4);
  const auto call = [&](Ranks& ranks, std::uint64_t graphs) {
    std::vector<std::uint64_t> captures;
    for (std::uint64_t rank = 0; rank < 4; ++rank) captures.push_back(1 + rank % graphs);
    ranks.capture(captures);
    const auto want = ranks.fill(100, random);
    const Status status = ranks.call_together({});
    if (status) ranks.expect(want, fmt::format("{} graphs", graphs));
    return status;
  };
  for (int again = 0; again < 2; ++again) EXPECT_TRUE(call(*first, 4));
  EXPECT_TRUE(call(second, 1));
  const Status refused = call(second, 4);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidUsage);
  EXPECT_THAT(refused.error().message, HasSubstr("of its 7 hardware queues"));
  EXPECT_THAT(refused.error().message, HasSubstr("graphs have 4;"));
  first.reset();  // gives its queues back
  EXPECT_TRUE(call(second, 4));
}

TEST(DeviceJob, ARankThatDoesNotComeIsNamed) {
  std::mt19937 random = seeded();
  EmulatedPlatform platform({});
  Ranks ranks(platform, 3);
  static_cast<void>(ranks.fill(100, random));
  const auto statuses = ranks.call_apart({}, 100'000'000, 1);
  for (const std::size_t rank : {0, 2}) {
    ASSERT_FALSE(statuses[rank]);
    EXPECT_EQ(statuses[rank].error().code, Code::kTimeout);
    // Alone, unless the other one's thread came later than the timeout.
    EXPECT_THAT(statuses[rank].error().message,
                AnyOf(HasSubstr("rank 1 of"), HasSubstr("rank 1, 2 of"), HasSubstr(", 1 of")));
  }
  ranks.job().abort();
}

// On a device of its own a rank is not waited for by the host; the kernels' own patience ends.
TEST(DeviceJob, AKernelThatWaitsTooLongSaysForWhom) {
  std::mt19937 random = seeded();
  EmulatedPlatform platform({});
  Ranks ranks(platform, 2, 2, 1'000'000);
  static_cast<void>(ranks.fill(100, random));
  const auto statuses = ranks.call_apart(forced("ring@slots"), kLongNs, 1);
  ASSERT_TRUE(statuses[0]);
  ranks.synchronize();
  const auto found = ranks.job().fault();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 0);
  EXPECT_EQ(found->what.fault, device::Fault::kTimeout);
  EXPECT_EQ(found->what.peer, 1);
}

TEST(DeviceJob, AnAbortEndsKernelsAndCalls) {
  std::mt19937 random = seeded();
  EmulatedPlatform platform({});
  Ranks ranks(platform, 3, 2);  // ranks 0 and 2 share a device
  static_cast<void>(ranks.fill(100, random));
  std::jthread ends([&] {
    for (auto turns = random() % 300; turns > 0; --turns) ::sched_yield();
    ranks.job().abort();
  });
  const auto statuses = ranks.call_apart({}, kLongNs, 2);
  ends.join();
  EXPECT_FALSE(statuses[0]);  // it waited for rank 2 of its device
  ranks.synchronize();        // the kernel of rank 1 has ended
  const auto later = ranks.call_apart({});
  for (const Status& status : later) EXPECT_FALSE(status);
}

TEST(DeviceJob, CallsThatDoNotMatchAreRefusedOnAllRanksOfADevice) {
  std::mt19937 random = seeded();
  EmulatedPlatform platform({});
  Ranks ranks(platform, 2);
  static_cast<void>(ranks.fill(100, random));
  std::vector<Issue> issues{*ranks.issue(0, {}), *ranks.issue(1, {})};
  issues[1].op = ReduceOp::kMax;
  std::vector<Status> statuses(2);
  {
    std::jthread other([&] { statuses[1] = submit(ranks.job(), {&issues[1], 1}, kLongNs); });
    statuses[0] = submit(ranks.job(), {&issues[0], 1}, kLongNs);
  }
  for (const Status& status : statuses) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kInvalidUsage);
    EXPECT_THAT(status.error().message, HasSubstr("do not match"));
  }
}

TEST(DeviceJob, ADeviceHasRoomForSoManyBlocks) {
  EmulatedPlatform platform({.blocks = 9});
  std::vector<std::unique_ptr<Ranks>> all;
  std::vector<std::uint32_t> blocks;
  for (int i = 0; i < 3; ++i) {
    all.push_back(std::make_unique<Ranks>(platform, 2));
    blocks.push_back(all.back()->job().blocks_each());
  }
  EXPECT_THAT(blocks, testing::ElementsAre(2, 1, 1));  // 4, 2 and 2 of 9
  SessionId key{};
  key[1] = std::byte{1};
  const auto refused = Job::join(platform, key, 0, 2, 0, kArena);
  ASSERT_TRUE(Job::join(platform, key, 1, 2, 0, kArena));
  const Status full = (*refused)->prepare();
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error().message,
              HasSubstr("runs 9 blocks at once, and other communicators hold 8"));
  all.pop_back();  // gives its blocks back
  EXPECT_TRUE((*refused)->prepare());
}

TEST(DeviceJob, UsesNoOtherDevicesThanItsRanks) {
  EmulatedPlatform platform({.devices = 3});
  SessionId key{};
  key[3] = std::byte{1};
  const auto job = Job::join(platform, key, 0, 1, 2, kArena);
  ASSERT_TRUE((*job)->prepare());
  EXPECT_THAT(platform.used(), testing::ElementsAre(2));
}

TEST(DeviceJob, DevicesThatDoNotReachEachOtherAreRefused) {
  EmulatedPlatform platform({.devices = 2, .islands = true});
  SessionId key{};
  key[4] = std::byte{1};
  const auto job = Job::join(platform, key, 0, 2, 0, kArena);
  ASSERT_TRUE(Job::join(platform, key, 1, 2, 1, kArena));
  const Status status = (*job)->prepare();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kNotSupported);
}

TEST(DeviceJob, ARankTakesAsManyBlocksAsItIsToHave) {
  EmulatedPlatform platform({.blocks = 40});
  int jobs = 0;
  const auto blocks_each = [&](device::BlockRange one, device::BlockRange other) {
    SessionId key{};
    key[5] = static_cast<std::byte>(++jobs);
    std::shared_ptr<Job> job = *Job::join(platform, key, 0, 2, 0, kArena);
    EXPECT_TRUE(Job::join(platform, key, 1, 2, 0, kArena));
    job->limit_blocks(0, one);
    job->limit_blocks(1, other);
    EXPECT_TRUE(job->prepare());
    return job->blocks_each();
  };
  EXPECT_EQ(blocks_each({}, {}), 10u);
  EXPECT_EQ(blocks_each({.most = 3}, {}), 3u);
  EXPECT_EQ(blocks_each({.most = 3}, {.most = 2}), 2u);
  EXPECT_EQ(blocks_each({.least = 15}, {}), 15u);
  EXPECT_EQ(blocks_each({.least = 100}, {}), 20u);  // all there are
  EXPECT_EQ(blocks_each({.least = 15}, {.most = 4}), 4u);
}

TEST(DeviceJob, RanksOfOtherProcessesAreRefused) {
  EmulatedPlatform platform({});
  SessionId key{};
  key[2] = std::byte{1};
  const auto job = Job::join(platform, key, 1, 2, 0, kArena);
  const Status status = (*job)->prepare();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kNotSupported);
  EXPECT_THAT(status.error().message, HasSubstr("rank 0 is in another process"));
}

}  // namespace
}  // namespace tutti::test
