// SPDX-License-Identifier: Apache-2.0
// What /proc says of a process: enough to tell whether it lives, is stopped, or is another one that
// got the pid. Any thread.
#pragma once

#include <cstdint>
#include <optional>

namespace tutti::control {

struct ProcessStat {
  char state = '?';               // as in proc(5): 'T' stopped, 'Z' and 'X' ended
  std::uint64_t start_ticks = 0;  // since boot
};

// nullopt: there is no such process, or /proc does not show it.
[[nodiscard]] std::optional<ProcessStat> read_process_stat(std::int32_t pid);
// Returns the start time of process `pid` since boot, in clock ticks; 0: unknown.
[[nodiscard]] std::uint64_t process_start_ticks(std::int32_t pid);
// By SIGSTOP, a terminal or a debugger; false where it cannot be known.
[[nodiscard]] bool is_stopped(std::int32_t pid);
// Inode of this process's pid namespace; 0: unknown.
[[nodiscard]] std::uint64_t pid_namespace();

}  // namespace tutti::control
