// SPDX-License-Identifier: Apache-2.0
// What a job costs before it does anything: time from the first fork to the first result, and the
// memory that the library holds after a 64 MiB all-reduce.
//
// Runs on every thread, before its benchmark. Uses only the public API and /proc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/machine.hpp"
#include "common/ranks.hpp"

namespace tutti::perf {

struct StartupPlace {
  std::int64_t start_ns = 0;               // monotonic
  std::optional<MemoryUse> before_init;    // of this process
  bool first_thread = false;               // of this process: the one that speaks for its memory
  std::uint64_t process_buffer_bytes = 0;  // what all threads' ranks of this process will allocate
  int processes = 1;
  const char* start = "the first fork";  // what start_ns is, for people
};

inline constexpr std::size_t kStartupBytes = std::size_t{64} << 20;
// The bytes that one rank's buffer takes from the system during measure_startup.
[[nodiscard]] std::uint64_t startup_buffer_bytes();

// All ranks together; the comment lines, the same on every rank. Throws Exception.
[[nodiscard]] std::string measure_startup(ThreadRanks& ranks, const StartupPlace& place);

}  // namespace tutti::perf
