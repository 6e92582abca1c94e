// SPDX-License-Identifier: Apache-2.0
// A job of forked ranks with an observer beside them, who asks tutti-info what they do.
//
// The observer is the last of the forked processes. It finds the job by their common parent, and
// waits for a state of the ranks by asking the tool until it says so.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/clock.hpp"
#include "tests/comm/forked_job.hpp"

namespace tutti::test {

struct Outcome {
  int status = -1;
  std::string output;  // both streams
};

// `arguments` as a shell reads them.
inline Outcome run_info(const std::string& arguments) {
  const std::string command = std::string("2>&1 ") + TUTTI_INFO + " " + arguments;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  Outcome outcome;
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.output.append(buffer, n);
  outcome.status = WEXITSTATUS(::pclose(pipe));
  return outcome;
}

inline pid_t parent_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("PPid:")) return std::stoi(line.substr(5));
  return -1;
}

using Json = nlohmann::json;

// Far too long, and less than the forked ranks have.
constexpr std::int64_t kAwaitMs = 25'000;

// The observer's: asks until the job with that session, or without one any job of this process's
// siblings, is as `wanted` says; null after far too long.
inline Json await_job(const std::function<bool(const Json& job)>& wanted,
                      const std::string& session = {}) {
  std::string last;
  for (const Deadline deadline = Deadline::in_ms(kAwaitMs); !deadline.passed();) {
    last = run_info("ranks --json --after 0").output;
    const Json all = Json::parse(last, nullptr, false);
    if (all.is_discarded()) continue;
    for (const Json& job : all["jobs"]) {
      const bool mine =
          session.empty()
              ? !job["here"].empty() && parent_of(job["here"][0]["pid"].get<pid_t>()) == ::getppid()
              : job["session"] == session;
      if (mine && wanted(job)) return job;
    }
  }
  ADD_FAILURE() << "the job never came into the wanted state; last: " << last;
  return {};
}

inline bool has_culprit(const Json& job, const std::string& kind, int rank,
                        const std::vector<int>& waiting) {
  for (const Json& culprit : job["culprits"])
    if (culprit["kind"] == kind && culprit["rank"] == rank && culprit["waiting"] == waiting)
      return job["culprits"].size() == 1;
  return false;
}

// Others may be in the next operation while `rank` still leaves the last.
inline bool is_out(const Json& job, std::size_t rank) { return !job["here"][rank]["inside"]; }

inline bool has_come(const Json& job, std::size_t ranks, std::uint64_t operation) {
  if (job["here"].size() != ranks) return false;
  for (const Json& rank : job["here"])
    if (rank["entered"].get<std::uint64_t>() < operation) return false;
  return true;
}

inline pid_t pid_of_rank(const Json& job, int rank) {
  for (const Json& row : job["here"])
    if (row["rank"] == rank) return row["pid"].get<pid_t>();
  return -1;
}

// The lines of the tool's text that begin with `start`, in the part about that session.
inline std::vector<std::string> lines_of(const std::string& text, const std::string& session,
                                         const std::string& start) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  bool mine = false;
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("communicator ")) mine = line.find(session) != std::string::npos;
    if (mine && line.starts_with(start)) lines.push_back(line);
  }
  return lines;
}

// Bytes for processes that wait; made before the fork.
class Gate {
 public:
  Gate() { EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~Gate() {
    for (const int end : ends_) ::close(end);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open(int times) const {
    for (int i = 0; i < times; ++i) ASSERT_EQ(::write(ends_[1], "g", 1), 1);
  }
  void pass() const {
    char byte = 0;
    ASSERT_EQ(::read(ends_[0], &byte, 1), 1);
  }
  // Without waiting.
  [[nodiscard]] bool is_open() const {
    pollfd ready{.fd = ends_[0], .events = POLLIN, .revents = 0};
    return ::poll(&ready, 1, 0) == 1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

inline tuttiResult_t sum(tuttiComm_t comm, float& value, std::size_t count = 1) {
  std::vector<float> data(count, value);
  const tuttiResult_t result =
      tuttiAllReduce(data.data(), data.data(), count, tuttiFloat, tuttiSum, comm, nullptr);
  value = data[0];
  return result;
}

// Sums until rank 0 finds the gate open; false if an error came first.
inline bool sum_until_open(tuttiComm_t comm, int rank, const Gate& gate) {
  for (;;) {
    float over = rank == 0 && gate.is_open() ? 1.0f : 0.0f;
    if (sum(comm, over) != tuttiSuccess) return false;
    if (over != 0.0f) return true;
  }
}

}  // namespace tutti::test
