// SPDX-License-Identifier: Apache-2.0
// Communicators on emulated devices, from their start to groups of calls: what is taken when, and
// who is told where a call of a group cannot be made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "comm/communicator.hpp"
#include "comm/run_on_devices.hpp"
#include "emulated_platform.hpp"

namespace tutti {
namespace {

// Never destroyed, as CUDA's.
test::EmulatedPlatform& platform() {
  static auto* const one = new test::EmulatedPlatform({.devices = 2, .blocks = 64});
  return *one;
}
std::string fault;

}  // namespace

// In place of CUDA's.
namespace device {
Platform* cuda_platform(bool) { return fault.empty() ? &platform() : nullptr; }
std::string_view cuda_fault() { return fault; }
}  // namespace device

namespace test {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr std::size_t kCount = 100;
using Values = std::vector<std::int32_t>;

// A communicator of a rank, with buffers.
struct Member {
  std::unique_ptr<Communicator> communicator;
  EmulatedStream stream;
  Values input = Values(kCount, 1), output = Values(kCount, -1);

  void start(const UniqueId& id, Rank rank, std::int32_t ranks, int device,
             const Config& config = {}) {
    auto made =
        Communicator::create(id, rank, ranks, {.config = config, .cancel = {}, .device = device});
    ASSERT_TRUE(made) << made.error().message;
    communicator = *std::move(made);
  }
  [[nodiscard]] HeldCall call() {
    return {communicator.get(),
            {.collective = Collective::kAllReduce,
             .input = input.data(),
             .output = output.data(),
             .count = kCount,
             .type = DataType::kInt32,
             .op = ReduceOp::kSum,
             .on_device = true,
             .stream = &stream},
            nullptr};
  }
};

// Whoever is not told gives up after a while, by a timeout.
Config patient() {
  Config config;
  config.op_timeout_ns = 10'000'000'000;
  return config;
}

UniqueId make_id() { return *create_unique_id({.interfaces = "lo"}); }

// A thread for each of two ranks, which live on devices of their own.
void run(const std::function<void(Rank)>& body) {
  std::jthread other([&] { body(1); });
  body(0);
}

TEST(DeviceCommunicator, TakesWhatMayWaitForKernelsWhenItStarts) {
  const UniqueId id = make_id();
  std::vector<Member> members(2);
  const int before = platform().taken();
  run([&](Rank rank) { members[static_cast<std::size_t>(rank)].start(id, rank, 2, rank); });
  const int started = platform().taken();
  EXPECT_GT(started, before);
  run([&](Rank rank) {
    HeldCall call = members[static_cast<std::size_t>(rank)].call();
    for (const char* const name : {"auto", "ring@slots", "tree@flagged"}) {
      ASSERT_TRUE(call.communicator->set_algorithm(name));
      const Status status = run_on_devices({&call, 1});
      ASSERT_TRUE(status) << status.error().message;
    }
  });
  EXPECT_EQ(platform().taken(), started);
  for (Member& member : members) {
    member.stream.synchronize();
    EXPECT_THAT(member.output, Each(2));
  }
}

// Two ranks' calls of two communicators in a group; rank 0 cannot make one of them.
TEST(DeviceGroup, TheOtherCommunicatorsCallsRunWhereOneCannotBeMade) {
  const UniqueId ids[] = {make_id(), make_id()};
  std::vector<Member> members(4);  // by communicator and rank
  run([&](Rank rank) {
    const auto r = static_cast<std::size_t>(rank);
    for (std::size_t c = 0; c < 2; ++c) members[2 * c + r].start(ids[c], rank, 2, rank, patient());
    HeldCall calls[] = {members[r].call(), members[2 + r].call()};
    if (rank == 0) platform().fail_upload(0, Code::kSystemError);
    const Status status = run_on_devices(calls);
    if (rank != 0) return;
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kSystemError);
  });
  int failed = 0;
  for (std::size_t c = 0; c < 2; ++c) {
    const bool here = members[2 * c].communicator->error().has_value();
    failed += here ? 1 : 0;
    for (std::size_t r = 0; r < 2; ++r) {
      Member& member = members[2 * c + r];
      member.stream.synchronize();
      const auto error = member.communicator->error();
      ASSERT_EQ(error.has_value(), here) << "rank " << r;
      if (here)
        EXPECT_EQ(error->code, Code::kSystemError) << error->message;
      else
        EXPECT_THAT(member.output, Each(2)) << "rank " << r;
    }
  }
  EXPECT_EQ(failed, 1);
}

// A thread has two ranks, of which one cannot call, for a reason that all ranks usually share.
TEST(DeviceGroup, TheOtherRanksAreToldWhereOneCannotCall) {
  const UniqueId id = make_id();
  std::vector<Member> members(3);
  std::jthread both([&] {
    {
      std::jthread second([&] { members[1].start(id, 1, 3, 0, patient()); });
      members[0].start(id, 0, 3, 0, patient());
    }
    platform().fail_upload(0, Code::kNotSupported);
    HeldCall calls[] = {members[0].call(), members[1].call()};
    EXPECT_FALSE(run_on_devices(calls));
  });
  members[2].start(id, 2, 3, 1, patient());
  HeldCall call = members[2].call();
  static_cast<void>(run_on_devices({&call, 1}));  // it may be told before or after
  both.join();
  members[2].stream.synchronize();
  for (const Member& member : members) {
    const auto error = member.communicator->error();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, Code::kNotSupported) << error->message;
  }
}

TEST(DeviceCommunicator, WarnsOnceOfCudaThatTheLibraryCannotUse) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("tutti_cuda_fault_{}", ::getpid());
  Config config;
  config.log_file = path.string();
  fault = "driver too old";
  for (int i = 0; i < 2; ++i) {
    Member member;
    member.start(make_id(), 0, 1, 0, config);
    EXPECT_EQ(member.communicator->on_device(), nullptr);
  }
  fault.clear();
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::filesystem::remove(path);
  EXPECT_THAT(text.str(),
              HasSubstr("but this build cannot use it: driver too old; calls with device"));
  EXPECT_EQ(std::ranges::count(text.str(), '\n'), 1);
}

}  // namespace
}  // namespace test
}  // namespace tutti
