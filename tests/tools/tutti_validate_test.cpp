// SPDX-License-Identifier: Apache-2.0
// tutti-validate: it judges, its bundle is replayed by tutti-sim, and the profile learns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/host.hpp"
#include "model/machine_profile.hpp"
#include "tests/tools/command.hpp"

namespace tutti::validate {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// The lines of a table of candidates: price, measured time, name, why.
struct Row {
  std::string measured, name, why;
};
std::vector<Row> rows_of(const std::string& explained) {
  std::vector<Row> rows;
  std::istringstream text(explained);
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::vector<std::string> all;
    for (std::string word; words >> word;) all.push_back(word);
    // "#", price, measured, terms, slices, name, why
    const auto name = std::ranges::find_if(
        all, [](const std::string& word) { return word.find('@') != std::string::npos; });
    if (all.end() - name < 2 || name - all.begin() < 5) continue;
    rows.push_back({all[2], *name, *(name + 1)});
  }
  return rows;
}

TEST(TuttiValidate, WritesABundleThatTuttiSimReplaysAndTeachesTheProfile) {
  std::string folder = (std::filesystem::temp_directory_path() / "tutti-validate-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(::setenv("XDG_CACHE_HOME", folder.c_str(), 1), 0);
  int status = 0;
  const std::string validate =
      TUTTI_VALIDATE " --procs 3 -n 4 --seconds 0.02 --collectives all_reduce,scatter --learn ";
  const std::string said =
      testing::run_command(validate + "-b 1K -e 8K -f 8 -o " + folder + "/b", status);
  ASSERT_EQ(status, 0) << said;
  EXPECT_THAT(said, HasSubstr("# 3 ranks: regret of auto mean"));
  EXPECT_THAT(said, HasSubstr("\nscatter  "));
  const std::string replayed = testing::run_command(TUTTI_SIM " validate " + folder + "/b", status);
  EXPECT_EQ(status, 0) << replayed;
  for (const char* study : {"all_reduce on ", "scatter on "})
    EXPECT_THAT(replayed, HasSubstr(study));
  EXPECT_THAT(replayed, HasSubstr("; profile tutti-"));
  // Other sizes are learnt beside those.
  const std::string again = testing::run_command(validate + "-b 16K -e 16K", status);
  ASSERT_EQ(status, 0) << again;

  const std::string path = *profile_path("auto");
  const Result<MachineProfile> profile = read_profile(path);
  ASSERT_TRUE(profile) << profile.error().message;
  for (const MeasuredPlan& plan : profile->measured) {
    EXPECT_EQ(plan.ranks, 3);
    EXPECT_EQ(plan.cores, usable_cpus());
    EXPECT_FALSE(plan.windows);
  }
  EXPECT_THAT(
      profile->measured,
      Contains(Field(&MeasuredPlan::times, ElementsAre(Field(&MeasuredTime::bytes, 1 << 10),
                                                       Field(&MeasuredTime::bytes, 8 << 10),
                                                       Field(&MeasuredTime::bytes, 16 << 10)))));

  // Measured times stand beside prices, and the fastest runs: here one that price puts last.
  const std::string explain =
      "TUTTI_PROFILE=auto " SCATTER_PERF " --procs 3 -b 8K -e 8K -n 1 -c 0 --explain";
  const std::string explained = testing::run_command(explain, status);
  EXPECT_THAT(explained, HasSubstr("prices by the profile"));
  std::vector<Row> measured = rows_of(explained);
  std::erase_if(measured, [](const Row& row) { return row.measured == "-"; });
  ASSERT_GT(measured.size(), 5U) << explained;
  const std::string last = measured.back().name;
  MachineProfile other = *profile;
  for (MeasuredPlan& plan : other.measured)
    if (plan.collective == Collective::kScatter && plan.name == last)
      for (MeasuredTime& time : plan.times) time.time_us = 0.001;
  ASSERT_TRUE(write_profile(other, path));
  std::vector<std::string> running;
  for (const Row& row : rows_of(testing::run_command(explain, status)))
    if (row.why == "runs") running.push_back(row.name);
  EXPECT_THAT(running, ElementsAre(last));
  std::filesystem::remove_all(folder);
}

TEST(TuttiValidate, WhatIsNoSizeIsRefused) {
  int status = 0;
  EXPECT_EQ(
      testing::run_command(TUTTI_VALIDATE " --procs 2 -b -8", status),
      "tutti-validate: --minbytes: '-8' is not a size; give a number, or one like 64K, 16M or "
      "1G (see tutti-validate --help)\n");
  EXPECT_EQ(status, 2);
}

TEST(TuttiValidate, LearnsOnlyWhatHoldsWithinAHost) {
  int status = 0;
  EXPECT_EQ(
      testing::run_command("TUTTI_TRANSPORT=tcp " TUTTI_VALIDATE " --procs 2 --learn", status),
      "tutti-validate: --learn keeps times within a host, but TUTTI_TRANSPORT is tcp; unset it, or "
      "set it to shm\n");
  EXPECT_EQ(status, 2);
}

// What is forced would have other names, or the same ones for other plans.
TEST(TuttiValidate, LearnsWhatIsNotForcedInWindows) {
  std::string folder = (std::filesystem::temp_directory_path() / "tutti-validate-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/own.json";
  int status = 0;
  const std::string learn = "TUTTI_SLOT_BYTES=64K TUTTI_PROFILE=" + path +
                            " " TUTTI_VALIDATE
                            " --procs 2 -b 8K -e 8K -n 4 --seconds 0.02 --windows --learn";
  const std::string said = testing::run_command(learn, status);
  ASSERT_EQ(status, 0) << said;
  const Result<MachineProfile> once = read_profile(path);
  ASSERT_TRUE(once) << once.error().message;
  EXPECT_THAT(once->measured, Each(Field(&MeasuredPlan::windows, true)));
  EXPECT_THAT(once->measured,
              Contains(Field(&MeasuredPlan::name, "two_shot:access=remote@direct")));
  EXPECT_THAT(once->measured,
              Contains(Field(&MeasuredPlan::name, HasSubstr("@slots:replicas=2:slot=16K"))));
  // Again: in place of what was there.
  ASSERT_EQ((testing::run_command(learn, status), status), 0);
  const Result<MachineProfile> twice = read_profile(path);
  ASSERT_TRUE(twice) << twice.error().message;
  EXPECT_EQ(twice->measured.size(), once->measured.size());
  EXPECT_THAT(twice->measured, Each(Field(&MeasuredPlan::times, SizeIs(1))));

  // A file that nobody can read may have cost somebody minutes.
  ASSERT_EQ((testing::run_command("echo '{\"tutti_profile\": 3}' > " + path, status), status), 0);
  EXPECT_EQ(testing::run_command(learn, status),
            "tutti-validate: " + path +
                ": /tutti_profile: the profile has layout 3, but this library reads layout 5; run "
                "tutti-tune again\n");
  EXPECT_EQ(status, 2);
  EXPECT_EQ(testing::run_command("cat " + path, status), "{\"tutti_profile\": 3}\n");
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
