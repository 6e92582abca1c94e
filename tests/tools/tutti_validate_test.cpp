// SPDX-License-Identifier: Apache-2.0
// tutti-validate: it judges, its bundle is replayed by tutti-sim, and the profile learns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "model/machine_profile.hpp"
#include "tests/tools/command.hpp"

namespace tutti::validate {
namespace {

using ::testing::HasSubstr;

TEST(TuttiValidate, WritesABundleThatTuttiSimReplaysAndTeachesTheProfile) {
  std::string folder = (std::filesystem::temp_directory_path() / "tutti-validate-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(::setenv("XDG_CACHE_HOME", folder.c_str(), 1), 0);
  int status = 0;
  const std::string said = testing::run_command(
      TUTTI_VALIDATE " --procs 3 -b 1K -e 64K -f 8 -n 4 --seconds 0.05 --learn -o " + folder + "/b",
      status);
  ASSERT_EQ(status, 0) << said;
  EXPECT_THAT(said, HasSubstr("# 3 ranks: regret of auto mean"));
  const std::string replayed = testing::run_command(TUTTI_SIM " validate " + folder + "/b", status);
  EXPECT_EQ(status, 0) << replayed;
  EXPECT_THAT(replayed, HasSubstr("forced"));
  EXPECT_THAT(replayed, HasSubstr("; profile tutti-"));
  const std::string explained = testing::run_command(
      "TUTTI_PROFILE=auto " ALL_REDUCE_PERF " --procs 3 -b 8K -e 8K -n 1 -c 0 --explain", status);
  EXPECT_THAT(explained, HasSubstr("prices by the profile"));
  // Measured times stand beside prices.
  EXPECT_EQ(explained.find("one_shot@slots") == std::string::npos, false) << explained;
  std::size_t measured = 0;
  for (std::size_t at = 0; (at = explained.find("\n#  ", at)) != std::string::npos; ++at)
    if (explained.substr(at + 15, 11).find('-') == std::string::npos) ++measured;
  EXPECT_GT(measured, 5u) << explained;
  std::filesystem::remove_all(folder);
}

// A profile with costs of its own: the bundle has them, and tutti-sim predicts with them.
TEST(TuttiValidate, TheBundleBringsWhatAutoPricedWith) {
  std::string folder = (std::filesystem::temp_directory_path() / "tutti-validate-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  MachineProfile profile{.machine = describe_machine(), .created = "2000-01-01", .measured = {}};
  profile.costs.slotted.alpha_ns = 7e6;
  profile.costs.flagged.alpha_ns = 7e6;
  ASSERT_TRUE(write_profile(profile, folder + "/own.json"));
  int status = 0;
  const std::string said = testing::run_command(
      "TUTTI_PROFILE=" + folder +
          "/own.json " TUTTI_VALIDATE " --procs 2 -b 1K -e 1K -n 4 --seconds 0.05 -o " + folder +
          "/b",
      status);
  ASSERT_EQ(status, 0) << said;
  const Result<MachineProfile> kept = read_profile(folder + "/b/machine.json");
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_EQ(*kept, profile);
  const std::string points =
      testing::run_command(TUTTI_SIM " validate --points " + folder + "/b", status);
  ASSERT_EQ(status, 0) << points;
  // No prediction is shorter than one message of 7 ms.
  std::size_t seen = 0;
  for (std::size_t at = points.find('\n'); at + 1 < points.size(); at = points.find('\n', at + 1)) {
    const std::size_t end = points.find('\n', at + 1), comma = points.rfind(',', end);
    EXPECT_GE(std::stod(points.substr(comma + 1)), 7000) << points;
    ++seen;
  }
  EXPECT_GT(seen, 0u) << points;
  std::filesystem::remove_all(folder);
}

TEST(TuttiValidate, OneProcessHasNothingToChoose) {
  int status = 0;
  EXPECT_THAT(testing::run_command(TUTTI_VALIDATE, status), HasSubstr("give --procs N"));
  EXPECT_NE(status, 0);
  EXPECT_THAT(
      testing::run_command(
          TUTTI_VALIDATE " --procs 2 -b 1K -e 1K -n 4 --seconds 0.05 -o /proc/none", status),
      HasSubstr("tutti-validate: /proc/none"));
  EXPECT_NE(status, 0);
}

TEST(TuttiValidate, BadUsageIsOneLine) {
  int status = 0;
  EXPECT_EQ(testing::run_command(TUTTI_VALIDATE " --procs 2 -b 64 -e 8", status),
            "tutti-validate: there is no size from --minbytes 64 to --maxbytes 8; give the smaller "
            "one as --minbytes\n");
  EXPECT_EQ(status, 2);
  for (const char* flags : {" --bogus", " --seconds -1", " --procs 1"}) {
    EXPECT_THAT(testing::run_command(std::string(TUTTI_VALIDATE) + flags, status),
                ::testing::MatchesRegex("tutti-validate: [^\n]*see tutti-validate --help.\n"));
    EXPECT_EQ(status, 2);
  }
}

}  // namespace
}  // namespace tutti::validate
