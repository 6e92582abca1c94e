// SPDX-License-Identifier: Apache-2.0
// Profiles of machines: kept as they are, refused in a line.
#include "model/machine_profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "tests/seed.hpp"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

MachineProfile example() {
  MachineProfile profile{.machine = describe_machine(),
                         .created = "2026-11-21",
                         .costs = prior_costs(),
                         .residual = 0.125,
                         .measured = {{.collective = Collective::kAllGather,
                                       .ranks = 4,
                                       .cores = 2,
                                       .windows = true,
                                       .name = "ring@slots:replicas=2:slot=64K",
                                       .times = {{1 << 20, 123.5}, {4 << 20, 480}}}},
                         .device = DeviceProfile{.name = "a GPU", .costs = kPriorDeviceCosts}};
  profile.device->costs.slots.step_ns = 654;
  profile.costs.slotted.alpha_ns = 77;
  profile.costs.attached.remote_ns_per_byte = 0.5;
  return profile;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti-profile-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

TEST(MachineProfile, IsReadAsItWasWritten) {
  const TemporaryFolder folder;
  const std::string path = folder.file("deep/profile.json");
  ASSERT_TRUE(write_profile(example(), path));
  const auto read = read_profile(path);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, example());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.file("deep")), {}), 1);
}

TEST(MachineProfile, MayHoldOnePartAlone) {
  MachineProfile profile = example();
  profile.device.reset();
  EXPECT_EQ(parse_profile(to_json(profile), "p.json").value(), profile);
  // Costs that nobody has measured are not written as if somebody had.
  profile = {.machine = "m", .created = "now", .measured = {}, .device = example().device};
  EXPECT_EQ(to_json(profile).find("\"costs\""), std::string::npos);
  EXPECT_EQ(parse_profile(to_json(profile), "p.json").value(), profile);
}

// A profile that nobody could read back is not written, and the old one stays.
TEST(MachineProfile, IsNotWrittenLargerThanItIsRead) {
  const TemporaryFolder folder;
  const std::string path = folder.file("profile.json");
  ASSERT_TRUE(write_profile(example(), path));
  MachineProfile profile = example();
  for (std::uint64_t bytes = 8; bytes < 400'000; ++bytes)
    profile.measured[0].times.push_back({(8 << 20) + bytes, 1});
  const Status written = write_profile(profile, path);
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("learn fewer collectives"));
  EXPECT_EQ(read_profile(path).value(), example());
}

TEST(MachineProfile, TakesNoPlaceOfAFolderNorADevice) {
  const TemporaryFolder folder;
  const std::string path = folder.file("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const Status written = write_profile(example(), path);
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message,
              HasSubstr("pipe: cannot be written: it is not a regular file"));
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  EXPECT_FALSE(write_profile(example(), folder.file("")));
}

TEST(MachineProfile, WaitsForNoPipe) {
  const TemporaryFolder folder;
  const std::string path = folder.file("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto read = read_profile(path);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Code::kSystemError);
  EXPECT_THAT(read.error().message, HasSubstr("pipe cannot be read: it is not a file"));
}

TEST(MachineProfile, OfAnotherMachineIsRefused) {
  const TemporaryFolder folder;
  MachineProfile other = example();
  other.machine = "a quantum computer";
  const std::string path = folder.file("p.json");
  ASSERT_TRUE(write_profile(other, path));
  EXPECT_THAT(read_profile(path).error().message, HasSubstr("on another machine (a quantum"));
}

TEST(MachineProfile, MistakesAreToldWithFileAndPlace) {
  const auto refused = [](std::string_view from, std::string_view to) {
    std::string text = to_json(example());
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const auto profile = parse_profile(text, "p.json");
    return profile ? std::string("accepted") : profile.error().message;
  };
  EXPECT_THAT(refused("\"tutti_profile\": 5", "\"tutti_profile\": 9"),
              HasSubstr("p.json: /tutti_profile: the profile has layout 9"));
  // Its cost per byte held for messages too.
  EXPECT_THAT(refused("\"tutti_profile\": 5", "\"tutti_profile\": 1"),
              HasSubstr("tutti-tune again"));
  EXPECT_THAT(refused("\"alpha_ns\": 77", "\"alpha_ns\": -77"),
              HasSubstr("p.json: /costs/slots/alpha_ns"));
  EXPECT_THAT(refused("\"alpha_ns\": 77.0", "\"alpha_ns\": \"fast\""),
              HasSubstr("/costs/slots/alpha_ns"));
  EXPECT_THAT(refused("\"alpha_ns\": 77", "\"alpha\": 77"), HasSubstr("/costs/slots"));
  EXPECT_THAT(refused("\"step_ns\": 654", "\"step_ns\": -654"),
              HasSubstr("p.json: /device/slots/step_ns"));
  EXPECT_THAT(refused("\"step_ns\": 654", "\"steps\": 654"), HasSubstr("/device/slots"));
  EXPECT_THAT(refused("\"name\": \"a GPU\"", "\"name\": 7"), HasSubstr("/device/name"));
  EXPECT_THAT(refused("\"ranks\":4", "\"ranks\":0"), HasSubstr("/measured/0"));
  EXPECT_THAT(refused("123.5", "-123.5"),
              HasSubstr("p.json: /measured/0/times/0: needs 1 to 1000000000000000 bytes"));
  EXPECT_THAT(refused("123.5", "\"fast\""), HasSubstr("/measured/0/times/0: must be two numbers"));
  EXPECT_THAT(refused("1048576", "8388608"), HasSubstr("/measured/0/times/1: is out of order"));
  EXPECT_THAT(refused("\"machine\": \"", "\"machine\": \"x"), HasSubstr("/fingerprint"));
  EXPECT_THAT(refused("\"residual\"", "residual"), HasSubstr("p.json"));
}

// Bytes changed at random, or the end missing: read or refused in one line, never more.
TEST(MachineProfile, DamagedTextsAreReadOrRefused) {
  const unsigned seed = draw_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string good = to_json(example());
  for (int round = 0; round < 2000; ++round) {
    std::string text = good.substr(0, round % 2 == 0 ? good.size() : random() % good.size());
    for (unsigned changes = random() % 4; changes > 0 && !text.empty(); --changes)
      text[random() % text.size()] = static_cast<char>(random() % 256);
    const auto profile = parse_profile(text, "p.json");
    if (profile) continue;
    EXPECT_THAT(profile.error().message, HasSubstr("p.json"));
    EXPECT_EQ(profile.error().message.find('\n'), std::string::npos) << profile.error().message;
  }
}

TEST(MachineProfile, ThePathFollowsTheSetting) {
  EXPECT_FALSE(profile_path("off"));
  EXPECT_EQ(profile_path("/etc/tutti.json"), "/etc/tutti.json");
  ::setenv("XDG_CACHE_HOME", "/var/cache/me", 1);
  EXPECT_EQ(profile_path("auto"),
            "/var/cache/me/tutti/" + fingerprint_of(describe_machine()) + ".json");
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", "/home/me", 1);
  EXPECT_THAT(*profile_path("auto"), HasSubstr("/home/me/.cache/tutti/"));
  ::unsetenv("HOME");
  EXPECT_FALSE(profile_path("auto"));
}

}  // namespace
}  // namespace tutti::test
