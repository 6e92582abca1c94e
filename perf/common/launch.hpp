// SPDX-License-Identifier: Apache-2.0
// Runs a body as N processes of this machine and sees all of them to their end; or, where a
// launcher has started the processes, as one of them.
//
// The parent forks before any communicator or thread exists, relays the unique id from process 0 to
// the others, and waits. A process that dies is reported with its ranks, pid and signal; the others
// then have a grace period to end by themselves, after which the parent kills them, by pid, so that
// a command never hangs. Processes die with their parent (PR_SET_PDEATHSIG). With one process
// nothing is forked and the body runs in the caller.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tutti/tutti.h"

namespace tutti::perf {

// Thrown where this process cannot go on because another one has ended.
class OtherEnded : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Tells the body its place in the job. Valid during the body.
class Job {
 public:
  virtual ~Job() = default;
  [[nodiscard]] virtual int process() const = 0;
  [[nodiscard]] virtual int processes() const = 0;
  // Pid of each process, in order; 0: another one's that a launcher started.
  [[nodiscard]] virtual const std::vector<pid_t>& pids() const = 0;
  // Monotonic clock just before the first fork; in a launched process, at its own start.
  [[nodiscard]] virtual std::int64_t start_ns() const = 0;
  // Process 0 gives an id, all receive it; once. Blocks until the id is there; throws OtherEnded if
  // process 0 ended first. In launched processes `make` is called in each and does all that.
  [[nodiscard]] virtual tuttiUniqueId share(const std::function<tuttiUniqueId()>& make) = 0;
  // Keeps the first failure of the whole job (launched processes: of this process), and says
  // whether it was this one. Claim before peers
  // can learn of the failure: then what they meet by it comes later, and the cause stands here. The
  // launcher does not report how a process ended whose job has a failure claimed, unless a signal
  // ended it. Any thread.
  virtual bool claim_failure(const std::string& what) = 0;
  // Returns the failure that was claimed first, perhaps cut to kMaxFailureText; empty: none yet.
  // Any thread.
  [[nodiscard]] virtual std::string first_failure() const = 0;
};

inline constexpr std::size_t kMaxFailureText = 2000;

struct LaunchOptions {
  std::string program;  // for messages
  int processes = 1;
  int ranks_per_process = 1;  // for messages
  int grace_ms = 20'000;      // after the first death
  // The number of this process among `processes`, if a launcher has started all of them; then
  // launch() forks nothing.
  std::optional<int> launched_process = std::nullopt;
};

// Runs body in each process and returns the command's exit status: 0 if every body returned 0.
// Messages go to stderr, lines that start with the program's name.
[[nodiscard]] int launch(const LaunchOptions& options, const std::function<int(Job&)>& body);

}  // namespace tutti::perf
