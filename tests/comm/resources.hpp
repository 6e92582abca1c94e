// SPDX-License-Identifier: Apache-2.0
// What a process holds: so that a test can tell whether anything was left behind.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "tests/folder.hpp"

namespace tutti::test {

struct Resources {
  std::size_t descriptors = 0, threads = 0, children = 0, mappings = 0;
  bool operator==(const Resources&) const = default;
};

inline std::size_t entries(const std::string& folder) {
  const std::filesystem::directory_iterator all(folder), end;
  return static_cast<std::size_t>(std::distance(all, end));
}

// Is this line of /proc/self/maps memory that the library shares? Its memfds; where those are
// refused, files of O_TMPFILE ("#" and a number) or shm_open; flight recorders.
inline bool is_shared_memory(std::string_view line) {
  constexpr std::array<std::string_view, 5> kNames = {"memfd:tutti-", "/dev/shm/#", "/tmp/#",
                                                      "/dev/shm/tutti-", ".board"};
  return std::ranges::any_of(kNames,
                             [&](std::string_view name) { return line.find(name) != line.npos; });
}

// Threads of this process but those on their way out: a thread that has been joined still stands in
// /proc/self/task until the kernel is done with it, which can be later (a joined thread was seen
// there in 8 of 200,000 looks). Its flags say that it exits before whoever joins it wakes.
inline std::size_t living_threads() {
  constexpr unsigned kExiting = 0x4;  // PF_EXITING, include/linux/sched.h; proc_pid_stat(5)
  std::size_t living = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream stat(task.path() / "stat");
    std::string line;
    if (!std::getline(stat, line)) continue;  // gone
    std::istringstream after_name(line.substr(line.rfind(')') + 1));
    std::string skipped;
    for (int field = 3; field < 9; ++field) after_name >> skipped;
    unsigned flags = 0;
    after_name >> flags;
    living += (flags & kExiting) == 0;
  }
  return living;
}

inline Resources resources() {
  Resources now{.descriptors = entries("/proc/self/fd"), .threads = living_threads()};
  std::ifstream children(fmt::format("/proc/self/task/{}/children", ::getpid()));
  for (std::string pid; children >> pid;) ++now.children;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) now.mappings += is_shared_memory(line);
  return now;
}

// What a process holds once all that ends by itself has ended: the thread that served joins, for
// one, is told of an abort and not waited for. The first picture that is as before, or, where none
// is for `kMostSettleNs`, the last.
inline constexpr std::int64_t kMostSettleNs = 30'000'000'000;
inline Resources settled(const Resources& before) {
  const std::int64_t end_ns = now_ns() + kMostSettleNs;
  Resources now = resources();
  while (!(now == before) && now_ns() < end_ns) {
    ::sched_yield();
    now = resources();
  }
  return now;
}

using testing::Folder;

}  // namespace tutti::test
