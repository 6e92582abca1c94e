// SPDX-License-Identifier: Apache-2.0
// Who holds a job up: follows who waits for whom from every rank that waits to the one that waits
// for nobody, and says in one line what is the matter with it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "jobs.hpp"

namespace tutti::info {

// Names the kind of trouble, in the words of the JSON.
//   died         the process is gone
//   stopped      by SIGSTOP or a debugger
//   not entered  alive, outside of the operation that others wait in
//   left         said goodbye without entering it
//   gave up      its operation ended in an error
//   mismatch     it called something else under the same number
//   busy         in the operation, waiting for nobody
//   elsewhere    not on this host
//   cycle        ranks that wait for each other: a bug
//   error        what the communicator's own record says, where the waits do not lead to more
struct Culprit {
  std::string kind;
  Rank rank = kNoRank;
  std::vector<Rank> waiting;  // directly or through others, ascending
  std::string line;           // for people
};

// Waits shorter than `after_ns` are none, unless they are for a rank that is dead, stopped or has
// given up. In a job that has ended, all ranks are examined.
[[nodiscard]] std::vector<Culprit> find_culprits(const Job& job, const Moment& now,
                                                 std::int64_t after_ns);

// "rank 3 (pid 4711 on node1)".
[[nodiscard]] std::string rank_text(const control::BoardView& board, Rank rank);
// The communicator's own error, if it has ended with one.
[[nodiscard]] std::string error_text(const control::BoardView& board);
// "14.2 s", "350 ms", "3.1 h".
[[nodiscard]] std::string duration_text(std::int64_t ns);

}  // namespace tutti::info
