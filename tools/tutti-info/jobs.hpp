// SPDX-License-Identifier: Apache-2.0
// The boards of this host's ranks, or of files that a flight recorder left, and whether the
// processes in them live. Looks at /proc; changes nothing. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "board/board_view.hpp"

namespace tutti::info {

// kUnknown: of another pid namespace, or /proc does not show it.
enum class ProcessState : std::uint8_t { kRuns, kStopped, kGone, kUnknown };

struct Job {
  std::string source;  // where the board was found
  control::BoardView board;
  std::vector<ProcessState> processes;  // in the order of board.here
};

struct Jobs {
  std::vector<Job> jobs{};
  std::vector<std::string> problems{};  // one line for each board that cannot be read
  std::size_t hidden = 0;               // processes of others that were not looked at
};

// Every job with a rank among the processes that this user may look at.
[[nodiscard]] Jobs find_jobs();
// Those of the files named.
[[nodiscard]] Jobs read_jobs(const std::vector<std::string>& files);

// When this is read, in the clocks of this boot.
struct Moment {
  std::int64_t monotonic_ns = 0;
  std::int64_t realtime_ns = 0;
  std::uint64_t boot = 0;
};
[[nodiscard]] Moment moment_now();
// How long ago the board's monotonic time `at_ns` was; across boots by the date.
[[nodiscard]] std::int64_t age_ns(const control::BoardView& board, const Moment& now,
                                  std::int64_t at_ns);

}  // namespace tutti::info
