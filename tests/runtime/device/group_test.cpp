// Communicators on emulated devices, from their start to groups of calls: what is taken when, and
// who is told where a call of a group cannot be made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "emulated_platform.hpp"
#include "runtime/communicator.hpp"

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
            {.input = input.data(),
             .output = output.data(),
             .count = kCount,
             .type = DataType::kInt32,
             .op = ReduceOp::kSum,
             .on_device = true,
             .stream = &stream},
            nullptr};
  }
};

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
  EXPECT_THAT(text.str(), HasSubstr("which this build cannot: driver too old; calls with device"));
  EXPECT_EQ(std::ranges::count(text.str(), '\n'), 1);
}

}  // namespace
}  // namespace test
}  // namespace tutti
