// SPDX-License-Identifier: Apache-2.0
// Lines of the log: form, levels, files, and many writers at once.
#include "base/log.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/host.hpp"

namespace tutti {
namespace {

// A folder that is gone with everything in it when the test ends.
class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "tutti-log-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    for (const std::string& path : paths_) ::unlink(path.c_str());
    EXPECT_EQ(::rmdir(folder_.c_str()), 0);
  }
  std::string path(const std::string& name) {
    paths_.push_back(folder_ + "/" + name);
    return paths_.back();
  }
  // Without their times.
  static std::vector<std::string> lines_of(const std::string& path) {
    std::ifstream file(path);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(without_time(line));
    return lines;
  }
  static std::string without_time(const std::string& line) {
    EXPECT_THAT(line, testing::MatchesRegex(
                          "tutti [0-9]{4}(-[0-9]{2}){2}T([0-9]{2}:){2}[0-9]{2}.[0-9]{6}Z .*"));
    return line.size() < kTimeBytes ? line : line.substr(0, 6) + line.substr(6 + kTimeBytes);
  }
  static constexpr std::size_t kTimeBytes = 28;  // with the blank
  static std::string prefix(const std::string& rank) {
    return "tutti " + host_name() + ":" + std::to_string(::getpid()) + ":" + rank + " ";
  }

  std::string folder_;
  std::vector<std::string> paths_;
};

TEST_F(LogTest, ALineSaysWhoAndHowBad) {
  const std::string file = path("log");
  const Result<Log> log = Log::open(LogLevel::kInfo, file, 3);
  ASSERT_TRUE(log) << log.error().message;
  TUTTI_LOG(*log, LogLevel::kWarn, "rank {} is late by {} s", 2, 5);
  TUTTI_LOG(log->for_rank(kNoRank), LogLevel::kInfo, "two\nlines");
  EXPECT_THAT(lines_of(file), testing::ElementsAre(prefix("3") + "warn rank 2 is late by 5 s",
                                                   prefix("-") + "info two lines"));
}

TEST_F(LogTest, ALevelThatIsOffEvaluatesNothing) {
  const std::string file = path("log");
  const Result<Log> log = Log::open(LogLevel::kWarn, file);
  ASSERT_TRUE(log) << log.error().message;
  int evaluated = 0;
  TUTTI_LOG(*log, LogLevel::kInfo, "{}", ++evaluated);
  TUTTI_LOG(*log, LogLevel::kOff, "{}", ++evaluated);
  log->write(LogLevel::kTrace, "not this");
  EXPECT_EQ(evaluated, 0);
  EXPECT_TRUE(lines_of(file).empty());
  EXPECT_FALSE(Log().enabled(LogLevel::kError));
}

TEST_F(LogTest, WritesToStderrWithoutAFile) {
  testing::internal::CaptureStderr();
  TUTTI_LOG(Log(LogLevel::kError, 0), LogLevel::kError, "broken");
  EXPECT_EQ(without_time(testing::internal::GetCapturedStderr()), prefix("0") + "error broken\n");
}

TEST_F(LogTest, AnOffLogCreatesNoFile) {
  const Result<Log> log = Log::open(LogLevel::kOff, folder_ + "/never");
  ASSERT_TRUE(log);
  EXPECT_NE(::access((folder_ + "/never").c_str(), F_OK), 0);
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsAnError) {
  const std::string file = folder_ + "/no/such/folder";
  const Result<Log> log = Log::open(LogLevel::kWarn, file);
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().code, Code::kSystemError);
  EXPECT_THAT(log.error().message, testing::HasSubstr(file));
}

TEST_F(LogTest, PathsAreExpanded) {
  const std::string pid = std::to_string(::getpid());
  EXPECT_EQ(expand_log_path("/a/%h.%p.log"), "/a/" + host_name() + "." + pid + ".log");
  EXPECT_EQ(expand_log_path("100%%"), "100%");
  EXPECT_EQ(expand_log_path("%x%"), "%x%");
  const std::string file = path("log." + pid);
  ASSERT_TRUE(Log::open(LogLevel::kWarn, folder_ + "/log.%p"));
  EXPECT_EQ(::access(file.c_str(), F_OK), 0);
}

TEST_F(LogTest, LongLinesAreCut) {
  const std::string file = path("log");
  const Result<Log> log = Log::open(LogLevel::kWarn, file);
  ASSERT_TRUE(log);
  log->write(LogLevel::kWarn, std::string(100'000, 'x'));
  log->write(LogLevel::kWarn, "next");
  const std::vector<std::string> lines = lines_of(file);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].size() + kTimeBytes, kLogLineBytes - 1);
  EXPECT_EQ(lines[1], prefix("-") + "warn next");
}

TEST_F(LogTest, LinesOfThreadsAndProcessesNeverMix) {
  constexpr int kThreads = 4, kLines = 200;
  const std::string file = path("log");
  const Result<Log> log = Log::open(LogLevel::kWarn, file);
  ASSERT_TRUE(log);
  const auto write_lines = [&log](char letter) {
    for (int i = 0; i < kLines; ++i) log->write(LogLevel::kWarn, std::string(300, letter));
  };
  const pid_t child = ::fork();
  if (child == 0) {
    write_lines('p');
    ::_exit(0);
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(write_lines, static_cast<char>('a' + t));
  for (std::thread& thread : threads) thread.join();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  std::array<int, 128> seen{};
  for (const std::string& line : lines_of(file)) {
    ASSERT_GT(line.size(), 300u);
    const std::string text = line.substr(line.size() - 300);
    ASSERT_EQ(text, std::string(300, text[0]));
    ASSERT_TRUE(line.starts_with("tutti ")) << line;
    ++seen[static_cast<std::size_t>(text[0])];
  }
  for (const char letter : {'a', 'b', 'c', 'd', 'p'})
    EXPECT_EQ(seen[static_cast<std::size_t>(letter)], kLines) << letter;
}

TEST(LogLevels, NamesRoundTrip) {
  for (int i = 0; i < kLogLevelCount; ++i) {
    const auto level = static_cast<LogLevel>(i);
    EXPECT_EQ(parse_log_level(name_of(level)), level);
  }
  EXPECT_FALSE(parse_log_level("loud"));
}

// In a folder where others may write, somebody may have put something at the file's name.
TEST_F(LogTest, FollowsNoSymbolicLinkAndWaitsForNoPipe) {
  const std::string target = path("theirs"), link = path("link"), pipe = path("pipe");
  std::ofstream(target) << "as it was\n";
  ASSERT_EQ(::symlink(target.c_str(), link.c_str()), 0);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0666), 0);
  for (const auto& [name, why] : {std::pair{link, "symbolic link"}, {pipe, "not a regular file"}}) {
    const Result<Log> log = Log::open(LogLevel::kWarn, name);
    ASSERT_FALSE(log) << name;
    EXPECT_EQ(log.error().code, Code::kSystemError);
    EXPECT_THAT(log.error().message,
                testing::AllOf(testing::HasSubstr(name), testing::HasSubstr(why)));
  }
  const UniqueFd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_FALSE(Log::open(LogLevel::kWarn, pipe));  // also where somebody reads it
  std::ifstream unchanged(target);
  std::string text((std::istreambuf_iterator<char>(unchanged)), {});
  EXPECT_EQ(text, "as it was\n");
  EXPECT_TRUE(Log::open(LogLevel::kWarn, "/dev/null"));
}

TEST_F(LogTest, IsForItsUserAlone) {
  const std::string file = path("log");
  const mode_t before = ::umask(0);
  EXPECT_TRUE(Log::open(LogLevel::kWarn, file));
  ::umask(before);
  struct stat info {};
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

void expect_no_signal_waits() {
  sigset_t pending;
  ::sigpending(&pending);
  EXPECT_EQ(::sigismember(&pending, SIGPIPE), 0);
  EXPECT_EQ(::sigismember(&pending, SIGXFSZ), 0);
}

TEST_F(LogTest, ALineThatNobodyReadsRaisesNoSignal) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Result<Log> log = Log::open(LogLevel::kWarn, "/proc/self/fd/" + std::to_string(ends[1]));
  ASSERT_TRUE(log) << log.error().message;
  ::close(ends[0]);
  ::close(ends[1]);
  log->write(LogLevel::kWarn, "nobody reads this");
  expect_no_signal_waits();
}

TEST_F(LogTest, ALineThatDoesNotFitIntoItsFileRaisesNoSignal) {
  const Result<Log> log = Log::open(LogLevel::kWarn, path("log"));
  ASSERT_TRUE(log);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 10, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int i = 0; i < 3; ++i) log->write(LogLevel::kWarn, "longer than that");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  expect_no_signal_waits();
}

}  // namespace
}  // namespace tutti
