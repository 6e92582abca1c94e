// SPDX-License-Identifier: Apache-2.0
// What the perf tools ask of the operating system: names, memory, the time of day.
// Any thread. Linux; what cannot be read comes back empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tutti::perf {

[[nodiscard]] std::string host_name();
// "AMD EPYC 7B13 64-Core Processor"; "unknown processor" where the kernel does not say.
[[nodiscard]] std::string processor_name();
// Local time as "2024-01-01 12:00:00".
[[nodiscard]] std::string local_time();
// Memory that could still be used: the machine's MemAvailable or the control group's rest, if less.
[[nodiscard]] std::optional<std::uint64_t> available_memory_bytes();

// This process's memory, from /proc/self/smaps_rollup.
struct MemoryUse {
  std::uint64_t anonymous_bytes = 0;    // private and written
  std::uint64_t shared_part_bytes = 0;  // proportional part of shared memory segments (Pss_Shmem):
                                        // summed over processes, each page counts once
};
[[nodiscard]] std::optional<MemoryUse> memory_use();

}  // namespace tutti::perf
