// SPDX-License-Identifier: Apache-2.0
// The tool itself, as a user runs it on host memory: real processes and threads, the table parsed
// as scripts do.
#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

extern char** environ;

namespace tutti::perf {
namespace {

using testing::HasSubstr;

std::vector<std::string> split(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> out;
  for (std::string word; words >> word;) out.push_back(word);
  return out;
}

// A running tool. Its output is read as it comes, so that it never blocks on a full pipe.
class Tool {
 public:
  // With `file`, stdout goes there and not into `output`.
  explicit Tool(const std::string& arguments, const char* file = nullptr) {
    int out[2], err[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) std::abort();
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // the same run on a machine with a GPU
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
    if (file != nullptr)
      posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, file, O_WRONLY, 0);
    std::vector<std::string> words = split(arguments);
    words.insert(words.begin(), TUTTI_ALL_REDUCE_PERF);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    if (::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) std::abort();
    posix_spawn_file_actions_destroy(&actions);
    ::close(out[1]);
    ::close(err[1]);
    out_ = out[0];
    err_ = err[0];
  }
  ~Tool() {
    ::close(out_);
    ::close(err_);
  }

  // Reads until stdout holds `text`, or all output has ended.
  bool wait_for(const std::string& text) {
    while (output.find(text) == std::string::npos)
      if (!pump()) return false;
    return true;
  }
  // Reads everything and returns the exit status.
  int finish() {
    while (pump()) {
    }
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::string output, errors;

 private:
  bool pump() {
    pollfd polls[2] = {{out_open_ ? out_ : -1, POLLIN, 0}, {err_open_ ? err_ : -1, POLLIN, 0}};
    if (!out_open_ && !err_open_) return false;
    if (::poll(polls, 2, -1) < 0) return errno == EINTR;
    if (polls[0].revents != 0) out_open_ = take(out_, output);
    if (polls[1].revents != 0) err_open_ = take(err_, errors);
    return true;
  }
  static bool take(int fd, std::string& into) {
    char buffer[4096];
    const ssize_t n = ::read(fd, buffer, sizeof(buffer));
    if (n > 0) into.append(buffer, static_cast<std::size_t>(n));
    return n > 0;
  }
  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
  bool out_open_ = true, err_open_ = true;
};

// The data rows, split on whitespace.
std::vector<std::vector<std::string>> rows_of(const std::string& output) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);)
    if (!line.empty() && line[0] != '#') rows.push_back(split(line));
  return rows;
}

std::vector<pid_t> pids_of(const std::string& output) {
  std::vector<pid_t> pids;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    int rank = 0, pid = 0;
    if (std::sscanf(line.c_str(), "#  Rank %d Group %*d Pid %d", &rank, &pid) == 2)
      pids.push_back(pid);
  }
  return pids;
}

struct Shape {
  const char* name;
  const char* arguments;
  std::size_t ranks, processes;
};

void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.arguments; }

class AllReducePerf : public testing::TestWithParam<Shape> {};

TEST_P(AllReducePerf, TableIsCompleteAndRight) {
  const Shape& run = GetParam();
  Tool tool(fmt::format("{} -b 8 -e 64K -f 4 -n 5", run.arguments));
  ASSERT_EQ(tool.finish(), 0) << tool.output << tool.errors;
  EXPECT_EQ(tool.errors, "");
  const auto rows = rows_of(tool.output);
  ASSERT_EQ(rows.size(), 7u) << tool.output;
  std::uint64_t bytes = 8;
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 13u);
    EXPECT_EQ(row[0], std::to_string(bytes));
    EXPECT_EQ(row[1], std::to_string(bytes / 4));
    EXPECT_EQ(row[2], "float");
    EXPECT_EQ(row[3], "sum");
    EXPECT_EQ(row[4], "-1");
    EXPECT_GT(std::stod(row[5]), 0);
    EXPECT_EQ(row[8], "0");
    EXPECT_GT(std::stod(row[9]), 0);
    EXPECT_EQ(row[12], "0");
    bytes *= 4;
  }
  const std::vector<pid_t> pids = pids_of(tool.output);
  EXPECT_EQ(pids.size(), run.ranks);
  EXPECT_EQ((std::set<pid_t>(pids.begin(), pids.end()).size()), run.processes);
  EXPECT_THAT(tool.output, HasSubstr("# Out of bounds values : 0 OK\n"));
  EXPECT_THAT(tool.output, HasSubstr("# Collective test concluded: all_reduce_perf\n"));
}

INSTANTIATE_TEST_SUITE_P(Shapes, AllReducePerf,
                         testing::Values(Shape{"one", "", 1, 1}, Shape{"procs2", "--procs 2", 2, 2},
                                         Shape{"threads3", "-t 3", 3, 1},
                                         Shape{"ranks2", "-g 2", 2, 1},
                                         Shape{"mixed", "--procs 2 -t 2 -g 2 -p 1", 8, 2},
                                         Shape{"windows", "--procs 2 -t 2 -g 2 -R 2", 8, 2},
                                         Shape{"grouped", "-t 2 -m 3 -c 2", 2, 1},
                                         Shape{"unaligned", "--procs 2 -u 3 -z 1 -a 3", 2, 2}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(AllReducePerfTool, EveryTypeAndOperation) {
  Tool tool("-t 3 -b 1K -e 1K -n 2 -d all -o all");
  ASSERT_EQ(tool.finish(), 0) << tool.output << tool.errors;
  std::set<std::string> seen;
  for (const auto& row : rows_of(tool.output)) {
    seen.insert(row[2] + " " + row[3]);
    EXPECT_EQ(row[8], "0");
    EXPECT_EQ(row[12], "0");
  }
  for (const char* type : {"int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float",
                           "double", "bfloat16"})
    for (const char* op : {"sum", "prod", "max", "min", "avg"})
      EXPECT_TRUE(seen.contains(fmt::format("{} {}", type, op))) << type << ' ' << op;
  // What the library lacks is said, not passed over.
  EXPECT_THAT(tool.errors, HasSubstr("# skipped float mulsum: "));
}

TEST(AllReducePerfTool, OddSizesAndZero) {
  Tool tool("--procs 3 -b 0 -e 100 -i 9 -n 3 -d int8");
  ASSERT_EQ(tool.finish(), 0) << tool.output << tool.errors;
  EXPECT_EQ(rows_of(tool.output).size(), 12u);
}

TEST(AllReducePerfTool, ForcedAlgorithmIsReported) {
  for (const char* name : {"ring", "tree", "one_shot"}) {
    Tool tool(fmt::format("-t 3 -b 4K -e 4K -n 2 --plan --algo {}", name));
    ASSERT_EQ(tool.finish(), 0) << tool.output << tool.errors;
    EXPECT_THAT(tool.output, HasSubstr(fmt::format("algorithm {}\n", name)));
    EXPECT_THAT(tool.output, HasSubstr(fmt::format("#   plan both: {} ", name)));
  }
  ::setenv("TUTTI_ALGO", "ring", 1);
  Tool by_environment("-t 3 -b 4K -e 4K -n 2 --plan");
  ::unsetenv("TUTTI_ALGO");
  ASSERT_EQ(by_environment.finish(), 0) << by_environment.output << by_environment.errors;
  EXPECT_THAT(by_environment.output, HasSubstr("algorithm ring\n"));
  EXPECT_THAT(by_environment.output, HasSubstr("#   plan both: ring "));
  Tool unknown("-t 2 --algo does_not_exist -b 8 -e 8");
  EXPECT_EQ(unknown.finish(), 1);
  EXPECT_THAT(unknown.errors, HasSubstr("does_not_exist"));
}

// Four processes, dealt to the two NUMA nodes of a machine that is described.
TEST(AllReducePerfTool, RanksStandByTheMachineAndNotByNumber) {
  ::setenv("HWLOC_SYNTHETIC", "numa:2 core:4 pu:1", 1);
  ::setenv("TUTTI_SEATS", "0/4/1/5", 1);
  Tool tool("--procs 4 --explain -b 4 -e 256K -f 16 -n 5");
  const int status = tool.finish();
  ::setenv("TUTTI_TOPOLOGY", "off", 1);
  Tool off("--procs 4 --explain -b 4 -e 4 -n 5");
  const int off_status = off.finish();
  ::unsetenv("HWLOC_SYNTHETIC");
  ::unsetenv("TUTTI_SEATS");
  ::unsetenv("TUTTI_TOPOLOGY");
  ASSERT_EQ(status, 0) << tool.output << tool.errors;
  ASSERT_EQ(off_status, 0) << off.output << off.errors;
  EXPECT_EQ(off.output.find("rank order"), std::string::npos);
  for (const auto& row : rows_of(tool.output)) {
    EXPECT_EQ(row[8], "0") << tool.output;
    EXPECT_EQ(row[12], "0") << tool.output;
  }
  if (tool.errors.find("no hwloc") != std::string::npos) GTEST_SKIP() << tool.errors;
  EXPECT_EQ(tool.errors, "");
  EXPECT_THAT(tool.output, HasSubstr("rank order: 2 0 1 3 in rings"));
  EXPECT_THAT(tool.output, HasSubstr("source: HWLOC_SYNTHETIC \"numa:2 core:4 pu:1\""));
  EXPECT_THAT(tool.output, HasSubstr("groups 2x2"));
}

TEST(AllReducePerfTool, JsonHoldsTheTable) {
  std::string folder = testing::TempDir() + "tutti_perf_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/out.json";
  Tool tool(fmt::format("--procs 2 -b 8 -e 32 -f 2 -n 4 -I 1 -K 1 -J {}", path));
  ASSERT_EQ(tool.finish(), 0) << tool.output << tool.errors;
  EXPECT_THAT(tool.output, HasSubstr("# Writing JSON output to " + path));
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  EXPECT_EQ(json["results"].size(), 3u);
  EXPECT_EQ(json["config"]["devices"].size(), 2u);
  EXPECT_TRUE(json["env"].empty());
  const auto& iterations = json["results"][0]["in_place_per_iter"];
  EXPECT_EQ(iterations["times_us"].size(), 4u);
  EXPECT_EQ(iterations["per_process_max_times_us"].size(), 2u);
  EXPECT_EQ(rows_of(tool.output)[0].size(), 21u);
  std::filesystem::remove_all(folder);
}

// Processes 0 and 2 report, 1 and 3 measure beside them. The factor of the bus bandwidth tells how
// many ranks a group has.
TEST(AllReducePerfTool, SplitsTheJobAsNcclTests) {
  ::setenv("NCCL_TESTS_SPLIT", "MOD 2", 1);
  Tool tool("--procs 4 -t 2 -b 1M -e 1M -n 3");
  Tool uneven("--procs 3 -b 1K -e 1K -n 3 -I 1");
  ::unsetenv("NCCL_TESTS_SPLIT");
  ASSERT_EQ(tool.finish(), 0) << tool.output << tool.errors;
  const auto rows = rows_of(tool.output);
  ASSERT_EQ(rows.size(), 1u) << tool.output;
  EXPECT_EQ(rows[0][8], "0");
  EXPECT_EQ(rows[0][12], "0");
  // Both have two decimals, which on a slow machine are few digits.
  constexpr double kHalfDigit = 0.005;
  EXPECT_NEAR(std::stod(rows[0][7]), 1.5 * std::stod(rows[0][6]), 2.5 * kHalfDigit + 1e-9)
      << "four ranks of eight";
  std::vector<int> groups;
  std::istringstream lines(tool.output);
  for (std::string line; std::getline(lines, line);)
    if (int group = 0; std::sscanf(line.c_str(), "#  Rank %*d Group %d", &group) == 1)
      groups.push_back(group);
  EXPECT_EQ(groups, (std::vector{0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(uneven.finish(), 0) << uneven.output << uneven.errors;
}

TEST(AllReducePerfTool, TooLittleBandwidthFails) {
  ::setenv("NCCL_TESTS_MIN_BW", "1e9", 1);
  Tool threads("-t 2 -b 8 -e 8 -n 2"), processes("--procs 2 -b 8 -e 8 -n 2");
  ::unsetenv("NCCL_TESTS_MIN_BW");
  for (Tool* tool : {&threads, &processes}) {
    EXPECT_EQ(tool->finish(), 1);
    EXPECT_THAT(tool->output, HasSubstr(" FAILED\n"));
    EXPECT_THAT(tool->errors,
                testing::MatchesRegex("all_reduce_perf: the average bus bandwidth, .* GB/s, is "
                                      "below 90 % of the 1e[+]09 GB/s that NCCL_TESTS_MIN_BW asks "
                                      "for\n"));
  }
}

TEST(AllReducePerfTool, OneMistakeIsToldOnceAndByItsCause) {
  for (const char* shape : {"--procs 4", "-t 4", "--procs 2 -t 2"}) {
    Tool tool(fmt::format("{} -b 8 -e 8 --algo hierarchical:groups=9", shape));
    EXPECT_EQ(tool.finish(), 1);
    EXPECT_EQ(std::count(tool.errors.begin(), tool.errors.end(), '\n'), 1) << tool.errors;
    EXPECT_THAT(tool.errors, testing::ContainsRegex("^all_reduce_perf: rank [0-3]: .*groups=9"));
    EXPECT_THAT(tool.output, testing::ContainsRegex("# error: rank [0-3]: .*groups=9"));
    EXPECT_THAT(tool.output, HasSubstr("# Out of bounds values : N/A FAILED\n"));
    EXPECT_THAT(tool.output, testing::Not(HasSubstr("OK")));
  }
}

TEST(AllReducePerfTool, LostOutputIsAFailure) {
  for (const char* arguments : {"-t 2 -b 8 -e 8 -n 2", "--procs 2 -b 8 -e 8 -n 2", "--help"}) {
    Tool tool(arguments, "/dev/full");
    EXPECT_EQ(tool.finish(), 1) << arguments;
    EXPECT_EQ(tool.errors,
              "all_reduce_perf: standard output cannot be written: No space left on device\n");
  }
}

TEST(AllReducePerfTool, MemoryLineHasNoNegativeZero) {
  Tool tool("-t 2 -b 8 -e 8 -n 2 -M 1");
  ASSERT_EQ(tool.finish(), 0) << tool.output << tool.errors;
  EXPECT_THAT(tool.output, HasSubstr("# Host memory usage    : Initialization "));
  EXPECT_THAT(tool.output, testing::Not(HasSubstr("-0.0 MB")));
}

TEST(AllReducePerfTool, ABadEnvironmentIsWrongUsage) {
  ::setenv("NCCL_TESTS_MIN_BW", "abc", 1);
  Tool tool("-t 2 -b 8 -e 8 -n 2");
  ::unsetenv("NCCL_TESTS_MIN_BW");
  EXPECT_EQ(tool.finish(), 2);
  EXPECT_EQ(tool.errors,
            "all_reduce_perf: NCCL_TESTS_MIN_BW='abc' is not a bandwidth in GB/s; example: 12.5\n");
}

TEST(AllReducePerfTool, WrongUsageAndHelp) {
  Tool wrong("-b 2 -e 1");
  EXPECT_EQ(wrong.finish(), 2);
  EXPECT_EQ(wrong.output, "");
  EXPECT_THAT(wrong.errors, HasSubstr("all_reduce_perf: invalid sizes"));
  Tool help("--help");
  EXPECT_EQ(help.finish(), 0);
  EXPECT_THAT(help.output, HasSubstr("--minbytes"));
}

TEST(AllReducePerfTool, WithoutAGpuMemoryIsTheHostsOrTheRunIsRefused) {
  Tool device("--memory device -b 8 -e 8");
  EXPECT_EQ(device.finish(), 2);
  EXPECT_TRUE(device.errors.starts_with("all_reduce_perf: --memory device: ")) << device.errors;
  EXPECT_EQ(std::count(device.errors.begin(), device.errors.end(), '\n'), 1) << device.errors;
  EXPECT_EQ(device.output, "");
  Tool automatic("-G 2 -b 8 -e 8");
  EXPECT_EQ(automatic.finish(), 0);
  EXPECT_THAT(automatic.output, HasSubstr("# 1 rank on host memory = "));
  EXPECT_EQ(automatic.errors, "# note: -G has no effect: ranks are on host memory\n");
}

TEST(AllReducePerfTool, MulsumAloneIsAClearError) {
  Tool tool("-t 2 -b 8 -e 8 -o mulsum");
  EXPECT_EQ(tool.finish(), 1);
  EXPECT_THAT(tool.errors, HasSubstr("all_reduce_perf: rank "));
}

TEST(AllReducePerfTool, AKilledRankEndsTheRunByName) {
  Tool tool("--procs 3 -b 8 -e 8 -N 0");
  ASSERT_TRUE(tool.wait_for("float")) << tool.output << tool.errors;  // it measures
  const std::vector<pid_t> pids = pids_of(tool.output);
  ASSERT_EQ(pids.size(), 3u);
  ASSERT_EQ(::kill(pids[1], SIGKILL), 0);
  EXPECT_EQ(tool.finish(), 1);
  EXPECT_THAT(tool.errors,
              HasSubstr(fmt::format(
                  "all_reduce_perf: rank 1 (pid {}) was killed by signal 9 (Killed)", pids[1])));
  // The survivors learn of it from the library, not from the launcher's patience.
  EXPECT_THAT(tool.errors, testing::Not(HasSubstr("is killed")));
  EXPECT_THAT(tool.errors, testing::ContainsRegex(fmt::format("rank [02]: .*{}", pids[1])));
}

TEST(AllReducePerfTool, StartupLines) {
  Tool tool("--procs 2 --startup -b 8 -e 8 -n 2");
  ASSERT_EQ(tool.finish(), 0) << tool.output << tool.errors;
  EXPECT_THAT(tool.output,
              testing::ContainsRegex("# Startup              : [0-9.]+ ms from the first fork"));
  EXPECT_THAT(tool.output, HasSubstr("# Memory               : "));
}

}  // namespace
}  // namespace tutti::perf
