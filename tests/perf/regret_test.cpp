// SPDX-License-Identifier: Apache-2.0
// regret: it runs, says what it chose and what was best, and keeps every sample.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tests/tools/command.hpp"

namespace tutti::perf {
namespace {

using ::testing::HasSubstr;

TEST(Regret, MeasuresEveryAlgorithmAndDrawsAMap) {
  std::string folder = (std::filesystem::temp_directory_path() / "tutti-regret-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  int status = 0;
  const std::string said =
      testing::run_command(REGRET " --procs 2,3 -b 1K -e 4K -f 4 -n 4 --seconds 0.05 --csv " +
                               folder + "/all.csv --svg " + folder + "/map.svg",
                           status);
  ASSERT_EQ(status, 0) << said;
  EXPECT_THAT(said, HasSubstr("# all_reduce: regret of auto over 4 points: mean"));
  EXPECT_THAT(said, HasSubstr("all_reduce, 3 ranks"));
  std::ifstream csv(folder + "/all.csv");
  std::string line;
  ASSERT_TRUE(std::getline(csv, line));
  EXPECT_EQ(line, "collective,ranks,bytes,candidate,repetition,time_us,priced_us");
  std::set<std::string> algorithms;
  while (std::getline(csv, line)) {
    EXPECT_EQ(line.rfind("all_reduce,", 0), 0u) << line;
    const std::size_t name = line.find(',', line.find(',', line.find(',') + 1) + 1) + 1;
    algorithms.insert(line.substr(name, line.find_first_of(",@:", name) - name));
  }
  for (const char* each : {"auto", "ring", "tree", "butterfly", "one_shot", "hierarchical"})
    EXPECT_EQ(algorithms.count(each), 1u) << each;
  std::ifstream svg(folder + "/map.svg");
  std::getline(svg, line);
  EXPECT_THAT(line, HasSubstr("<svg"));
  std::filesystem::remove_all(folder);
}

TEST(Regret, MeasuresAnyCollective) {
  int status = 0;
  const std::string said = testing::run_command(
      REGRET " --collectives all --procs 3 -b 32 -e 32K -f 1024 -n 4 --seconds 0.05 --fresh",
      status);
  ASSERT_EQ(status, 0) << said;
  EXPECT_THAT(said, ::testing::StartsWith("# from 32 KiB, every rank writes what it sends "));
  for (const char* each : {"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter",
                           "alltoall", "gather", "scatter"})
    EXPECT_THAT(said, HasSubstr(std::string("\n# ") + each + ": regret of auto over 2 points"));
  EXPECT_THAT(said, HasSubstr("\n# all: regret of auto over 16 points"));
  EXPECT_THAT(testing::run_command(REGRET " --collectives barrier", status),
              HasSubstr("regret: barrier has no algorithms of its own to compare"));
  EXPECT_EQ(status, 2);
  EXPECT_THAT(testing::run_command(REGRET " --collectives ring", status),
              HasSubstr("regret: --collectives: there is no ring; use all, or some of"));
  EXPECT_EQ(status, 2);
}

TEST(Regret, SaysWhatItCannotWrite) {
  int status = 0;
  EXPECT_THAT(testing::run_command(REGRET " --procs 2 --csv /no/such/folder/x.csv", status),
              HasSubstr("regret: /no/such/folder/x.csv cannot be written"));
  EXPECT_NE(status, 0);
}

TEST(Regret, BadUsageIsOneLine) {
  int status = 0;
  EXPECT_EQ(testing::run_command(REGRET " --procs 2 -b 1K -e 8", status),
            "regret: there is no size from --minbytes 1024 to --maxbytes 8; give the smaller one "
            "as --minbytes\n");
  EXPECT_EQ(status, 2);
  EXPECT_THAT(testing::run_command(REGRET " --bogus", status),
              ::testing::MatchesRegex("regret: [^\n]*see regret --help.\n"));
  EXPECT_EQ(status, 2);
}

}  // namespace
}  // namespace tutti::perf
