// SPDX-License-Identifier: Apache-2.0
// The flight recorder's file through the whole library: left behind by ranks that were all killed
// or met an error, gone after an end in order. A program of its own, for its environment.
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/host.hpp"
#include "ranks_job.hpp"

namespace tutti::test {
namespace {

namespace fs = std::filesystem;
using testing::ForkedRank;
using ::testing::HasSubstr;

class FlightFile : public ::testing::Test {
 protected:
  // The library reads its environment once.
  static void SetUpTestSuite() {
    std::string name = (fs::temp_directory_path() / "tutti-flight-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder() = name;
    ::setenv("TUTTI_FLIGHT_DIR", name.c_str(), 1);
  }
  static void TearDownTestSuite() { fs::remove_all(folder()); }
  void TearDown() override {
    for (const fs::path& file : files()) fs::remove(file);
  }
  static fs::path& folder() {
    static fs::path path;
    return path;
  }
  static std::vector<fs::path> files() {
    return {fs::directory_iterator(folder()), fs::directory_iterator()};
  }
};

TEST_F(FlightFile, OutlivesAllItsRanks) {
  constexpr int kRanks = 3;
  const Gate never;
  const auto observe = [&] {
    const Json job = await_job([](const Json& seen) { return has_come(seen, kRanks, 5); });
    ASSERT_FALSE(job.is_null());
    std::vector<pid_t> pids;
    for (int rank = 0; rank < kRanks; ++rank) pids.push_back(pid_of_rank(job, rank));
    for (const pid_t pid : pids) ASSERT_EQ(::kill(pid, SIGKILL), 0);
  };
  const auto results = testing::run_forked(
      kRanks + 1,
      [&](const ForkedRank& self) {
        if (self.rank == kRanks) return observe();
        const tuttiComm_t comm = join({self.rank, kRanks, self.message});
        static_cast<void>(sum_until_open(comm, self.rank, never));
        never.pass();  // an error came before the signal
      },
      with_unique_id());
  testing::expect_all_passed(results, {0, 1, 2});
  ASSERT_EQ(files().size(), 1u);
  const fs::path file = files()[0];
  EXPECT_THAT(file.filename().string(), ::testing::StartsWith("tutti-"));
  EXPECT_THAT(file.filename().string(), HasSubstr(host_name()));
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  const Outcome outcome = run_info("ranks --json " + file.string());
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  const Json json = Json::parse(outcome.output, nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  ASSERT_EQ(json["jobs"].size(), 1u);
  const Json& job = json["jobs"][0];
  EXPECT_THAT(file.filename().string(), HasSubstr(job["session"].get<std::string>()));
  ASSERT_EQ(job["here"].size(), 3u);
  for (int rank = 0; rank < kRanks; ++rank) {
    const Json& row = job["here"][static_cast<std::size_t>(rank)];
    EXPECT_EQ(row["pid"], results[static_cast<std::size_t>(rank)].pid);
    EXPECT_EQ(row["process"], "gone");
    EXPECT_GE(row["history"].size(), 4u);
    EXPECT_TRUE(row["nonsense"].empty()) << row.dump(1);
  }
  EXPECT_THAT(run_info("ranks --history 2 " + file.string()).output,
              HasSubstr(" ago  all_reduce #"));
}

TEST_F(FlightFile, IsGoneAfterAnEndInOrder) {
  testing::expect_all_passed(testing::run_forked(
      3,
      [&](const ForkedRank& self) {
        const tuttiComm_t comm = join(self);
        EXPECT_EQ(files().size(), 1u);
        float value = 1;
        EXPECT_EQ(sum(comm, value), tuttiSuccess);
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
      },
      with_unique_id()));
  EXPECT_TRUE(files().empty());
}

TEST_F(FlightFile, IsLeftBehindAfterAnError) {
  testing::expect_all_passed(testing::run_forked(
      2,
      [&](const ForkedRank& self) {
        const tuttiComm_t comm = join(self);
        float value = 1;
        EXPECT_EQ(sum(comm, value, self.rank == 0 ? 10 : 20), tuttiInvalidUsage);
        EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
      },
      with_unique_id()));
  ASSERT_EQ(files().size(), 1u);
  const Outcome outcome = run_info("ranks " + files()[0].string());
  EXPECT_THAT(outcome.output, HasSubstr("\n  error: calls do not match: rank "));
  EXPECT_THAT(outcome.output, HasSubstr("all_reduce #1 count 10 float"));
  EXPECT_THAT(outcome.output, HasSubstr("all_reduce #1 count 20 float"));
}

}  // namespace
}  // namespace tutti::test
