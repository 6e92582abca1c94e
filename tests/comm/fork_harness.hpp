// SPDX-License-Identifier: Apache-2.0
// Ranks as forked processes: run_forked(p, body) forks p children, runs body in each and collects
// how each ended.
//
//   const auto results = run_forked(4, [](const ForkedRank& self) { ... EXPECT_EQ(...); });
//   expect_all_passed(results);
//
// A child passes if its body returns, no expectation failed in it and, under the address sanitizer,
// it leaks nothing. A child that ends in its body, as one that is killed, is not asked for leaks:
// what it held then was in use. Failures, with their texts, come back through a pipe. What the
// children need from the parent (a unique id) is made by `after_fork`, in the parent, after all
// children exist: a process that has threads should not fork under the sanitizers. Children that
// outlive the deadline are killed, by pid; they also die with the parent.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "tests/leaks.hpp"

namespace tutti::testing {

struct ForkedRank {
  int rank = 0;
  int ranks = 0;
  std::string message;  // what after_fork returned
};

struct ForkOptions {
  std::int64_t timeout_ms = 30'000;
  std::function<std::string()> after_fork;
};

struct ForkedResult {
  pid_t pid = -1;
  bool passed = false;
  bool timed_out = false;
  int signal = 0;      // that ended it; 0: it exited
  std::string report;  // texts of its failures
};

namespace fork_detail {

// Sends a child's failed expectations to the parent.
class ReportToPipe : public ::testing::EmptyTestEventListener {
 public:
  explicit ReportToPipe(int pipe) : pipe_(pipe) {}
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const char* file = result.file_name() == nullptr ? "?" : result.file_name();
    const std::string text = std::string(file) + ":" + std::to_string(result.line_number()) + ": " +
                             result.message() + "\n";
    [[maybe_unused]] const ssize_t written = ::write(pipe_, text.data(), text.size());
  }

 private:
  int pipe_;
};

inline std::string read_all(int pipe) {
  std::string text;
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t got = ::read(pipe, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

[[noreturn]] inline void run_child(int rank, int ranks, int inbound, int outbound,
                                   const std::function<void(const ForkedRank&)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new ReportToPipe(outbound));
  body({.rank = rank, .ranks = ranks, .message = read_all(inbound)});
  EXPECT_FALSE(leaks_memory()) << "rank " << rank << " leaks memory: standard error says where";
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace fork_detail

inline std::vector<ForkedResult> run_forked(int ranks,
                                            const std::function<void(const ForkedRank&)>& body,
                                            const ForkOptions& options = {}) {
  std::vector<ForkedResult> results(static_cast<std::size_t>(ranks));
  std::vector<UniqueFd> to_children;
  std::vector<UniqueFd> from_children;
  for (int rank = 0; rank < ranks; ++rank) {
    std::array<int, 2> inbound{};
    std::array<int, 2> outbound{};
    if (::pipe2(inbound.data(), O_CLOEXEC) != 0 || ::pipe2(outbound.data(), O_CLOEXEC) != 0) {
      ADD_FAILURE() << "pipe2 failed, errno " << errno;
      break;
    }
    UniqueFd child_reads(inbound[0]);
    UniqueFd child_writes(outbound[1]);
    to_children.emplace_back(inbound[1]);
    from_children.emplace_back(outbound[0]);
    const pid_t pid = ::fork();
    if (pid == 0) {
      to_children.clear();
      from_children.clear();
      fork_detail::run_child(rank, ranks, child_reads.get(), child_writes.get(), body);
    }
    results[static_cast<std::size_t>(rank)].pid = pid;
  }
  const Deadline deadline = Deadline::in_ms(options.timeout_ms);
  const std::string message = options.after_fork ? options.after_fork() : std::string();
  for (UniqueFd& pipe : to_children) {
    [[maybe_unused]] const ssize_t written = ::write(pipe.get(), message.data(), message.size());
    pipe.reset();  // the child reads until the end
  }
  // A report is shorter than a pipe, so children never wait for us; their pipes end with them.
  for (std::size_t i = 0; i < from_children.size(); ++i) {
    ForkedResult& result = results[i];
    if (result.pid <= 0) continue;
    pollfd ended{.fd = from_children[i].get(), .events = 0, .revents = 0};
    while (::poll(&ended, 1, deadline.left_poll_ms()) < 0 && errno == EINTR) {
    }
    result.timed_out = (ended.revents & POLLHUP) == 0;
    if (result.timed_out) ::kill(result.pid, SIGKILL);
    int status = 0;
    while (::waitpid(result.pid, &status, 0) < 0 && errno == EINTR) {
    }
    result.report = fork_detail::read_all(from_children[i].get());
    result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    result.passed = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return results;
}

// All but the ranks in `killed` passed, and those died of SIGKILL by their own hand.
inline void expect_all_passed(const std::vector<ForkedResult>& results,
                              const std::vector<int>& killed = {}) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ForkedResult& result = results[i];
    EXPECT_FALSE(result.timed_out) << "rank " << i << " did not end in time; " << result.report;
    bool doomed = false;
    for (const int rank : killed) doomed = doomed || rank == static_cast<int>(i);
    if (doomed) {
      EXPECT_EQ(result.signal, SIGKILL) << "rank " << i << ": " << result.report;
    } else {
      EXPECT_TRUE(result.passed) << "rank " << i << " (signal " << result.signal
                                 << "): " << result.report;
    }
  }
}

}  // namespace tutti::testing
