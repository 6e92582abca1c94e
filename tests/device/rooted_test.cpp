// SPDX-License-Identifier: Apache-2.0
// Collectives with a root on emulated devices, by every algorithm that has them, direct forms among
// them: what arrives, and that nobody touches a buffer that a rank does not have.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/executor.hpp"
#include "device/job.hpp"
#include "emulated_platform.hpp"
#include "tests/sanitizers.hpp"
#include "tests/seed.hpp"

namespace tutti::test {
namespace {

using device::Executor;
using device::Issue;
using device::Job;

constexpr std::int64_t kLongNs = 60'000'000'000;

struct Rooted {
  Collective collective;
  std::int32_t ranks;
  Rank root;
  std::size_t count;  // of a block
};

using Values = std::vector<std::int32_t>;

class RootedJob {
 public:
  RootedJob(EmulatedPlatform& platform, std::int32_t count, int devices) {
    SessionId key{};
    key[0] = static_cast<std::byte>(++jobs_made);
    for (Rank rank = 0; rank < count; ++rank)
      job_ = *Job::join(platform, key, rank, count, rank % devices, 256 << 10);
    EXPECT_TRUE(job_->prepare());
    for (Rank rank = 0; rank < count; ++rank) {
      executors_.push_back(std::make_unique<Executor>(job_, rank, 0));
      streams_.push_back(std::make_unique<EmulatedStream>());
    }
  }

  // Runs one call; ranks have no buffer that the collective does not give them.
  void run(const Rooted& of, const Forced& forced, std::mt19937& random) {
    const auto ranks = static_cast<std::size_t>(of.ranks);
    std::vector<Values> inputs(ranks), outputs(ranks);
    std::vector<Issue> issues;
    for (Rank rank = 0; rank < of.ranks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      Call call{.collective = of.collective,
                .count = of.count,
                .type = DataType::kInt32,
                .root = of.root,
                .stream = streams_[at].get()};
      if (call.has_input(rank)) inputs[at].resize(call.input_bytes(rank, of.ranks) / 4);
      if (call.has_output(rank)) outputs[at].assign(call.output_bytes(rank, of.ranks) / 4, -1);
      for (std::int32_t& value : inputs[at]) value = static_cast<std::int32_t>(random() % 1000);
      call.input = call.has_input(rank) ? inputs[at].data() : nullptr;
      call.output = call.has_output(rank) ? outputs[at].data() : nullptr;
      const Result<Issue> issue = executors_[at]->prepare(call, forced);
      ASSERT_TRUE(issue) << issue.error().message;
      issues.push_back(*issue);
    }
    const auto ticket = job_->enqueue(issues);
    ASSERT_TRUE(ticket) << ticket.error().message;
    const Status ended = job_->await(*ticket, kLongNs);
    ASSERT_TRUE(ended) << ended.error().message;
    for (const auto& stream : streams_) stream->synchronize();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (outputs[rank].empty()) continue;
      EXPECT_EQ(outputs[rank], wanted(of, rank, inputs)) << rank;
    }
  }

  // Is `of`'s call refused where one of its buffers lies in a pool of its own device?
  [[nodiscard]] bool refuses(EmulatedPlatform& platform, const Rooted& call, Rank of, bool input,
                             const Forced& forced) {
    const auto at = static_cast<std::size_t>(of);
    Values in(2 * call.count), out(2 * call.count);
    platform.kept = {{input ? in.data() : out.data(), {device::Allocation::kPool, of, {of}}}};
    const Result<Issue> issue = executors_[at]->prepare({.collective = call.collective,
                                                         .input = in.data(),
                                                         .output = out.data(),
                                                         .count = call.count,
                                                         .type = DataType::kInt32,
                                                         .root = call.root,
                                                         .stream = streams_[at].get()},
                                                        forced);
    platform.kept.clear();
    return !issue && issue.error().code == Code::kInvalidArgument;
  }

 private:
  static Values wanted(const Rooted& of, std::size_t rank, const std::vector<Values>& inputs) {
    const Values& root = inputs[static_cast<std::size_t>(of.root)];
    Values want;
    switch (of.collective) {
      case Collective::kBroadcast:
        return root;
      case Collective::kScatter:
        want.assign(root.begin() + static_cast<std::ptrdiff_t>(rank * of.count),
                    root.begin() + static_cast<std::ptrdiff_t>((rank + 1) * of.count));
        return want;
      case Collective::kGather:
        for (const Values& input : inputs) want.insert(want.end(), input.begin(), input.end());
        return want;
      default:
        want.assign(of.count, 0);
        for (const Values& input : inputs)
          for (std::size_t i = 0; i < of.count; ++i) want[i] += input[i];
        return want;
    }
  }

  static inline int jobs_made = 0;
  std::shared_ptr<Job> job_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<std::unique_ptr<EmulatedStream>> streams_;
};

std::vector<std::string> names_for(Collective collective) {
  std::vector<std::string> names{"auto"};
  for (const Algorithm* const algorithm : all_algorithms())
    for (const char* const protocol : {"@cells", "@ll128", "@slots"})
      if (algorithm->supports({.collective = collective, .ranks = 4}))
        names.push_back(std::string(algorithm->name) + protocol);
  for (const Algorithm* const algorithm : direct_algorithms())
    if (algorithm->supports({.collective = collective, .ranks = 4}))
      names.emplace_back(algorithm->name);
  return names;
}

TEST(DeviceRooted, EveryAlgorithmAndRoot) {
  const unsigned seed = draw_seed();
  std::mt19937 random(seed);
  EmulatedPlatform platform({.threads = 2});
  for (const std::int32_t ranks : {1, 2, 3, 5}) {
    RootedJob job(platform, ranks, ranks > 2 ? 2 : 1);
    for (const Collective collective :
         {Collective::kBroadcast, Collective::kReduce, Collective::kGather, Collective::kScatter})
      for (const std::string& name : names_for(collective))
        for (const Rank root : {0, ranks - 1}) {
          const bool direct = name.find(":access=") != std::string::npos;
          if (kSanitized && !direct && random() % 6 != 0) continue;
          const std::size_t count = 1 + random() % 3000;
          SCOPED_TRACE(fmt::format("{} by {} among {}, root {}, count {}, seed {}",
                                   name_of(collective), name, ranks, root, count, seed));
          job.run({collective, ranks, root, count}, *parse_forced(name), random);
          if (testing::Test::HasFailure()) return;
        }
  }
}

// Peers of another device use what a direct plan says and no more: the root's buffer on one side.
TEST(DeviceRooted, PeersNeedToReachTheRootsBufferAlone) {
  EmulatedPlatform platform({.devices = 2});
  RootedJob job(platform, 2, 2);
  const auto refused = [&](Collective collective, Rank of, bool input, const char* name) {
    return job.refuses(platform, {collective, 2, 0, 100}, of, input, *parse_forced(name));
  };
  const char* const loads = "one_shot:access=remote";
  EXPECT_TRUE(refused(Collective::kBroadcast, 0, true, loads));
  EXPECT_FALSE(refused(Collective::kBroadcast, 0, false, loads));
  EXPECT_FALSE(refused(Collective::kBroadcast, 1, false, loads));
  EXPECT_TRUE(refused(Collective::kGather, 0, false, "one_shot:access=store"));
  EXPECT_FALSE(refused(Collective::kGather, 1, true, "one_shot:access=store"));
  EXPECT_TRUE(refused(Collective::kReduce, 1, true, "two_shot:access=store"));
  EXPECT_TRUE(refused(Collective::kReduce, 0, false, "two_shot:access=store"));
}

}  // namespace
}  // namespace tutti::test
