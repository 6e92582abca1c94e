// SPDX-License-Identifier: Apache-2.0
#include "control/process_stat.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string_view>

#include "base/fd.hpp"

namespace tutti::control {

// /proc/PID/stat: "pid (name) state ppid ... starttime ...", the start time is field 22 of proc(5).
// The name may hold blanks and parentheses, so fields count from the last one.
std::optional<ProcessStat> read_process_stat(std::int32_t pid) {
  const UniqueFd file(::open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::array<char, 1024> buffer;
  const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
  if (got <= 0) return std::nullopt;
  std::string_view text(buffer.data(), static_cast<std::size_t>(got));
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= text.size()) return std::nullopt;
  text.remove_prefix(name_end + 2);
  ProcessStat stat;
  stat.state = text.front();
  constexpr int kFieldsBetween = 22 - 3;  // the state is field 3
  for (int i = 0; i < kFieldsBetween; ++i) {
    const std::size_t blank = text.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    text.remove_prefix(blank + 1);
  }
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), stat.start_ticks);
  if (error != std::errc{}) return std::nullopt;
  return stat;
}

std::uint64_t process_start_ticks(std::int32_t pid) {
  const std::optional<ProcessStat> stat = read_process_stat(pid);
  return stat ? stat->start_ticks : 0;
}

bool is_stopped(std::int32_t pid) {
  const std::optional<ProcessStat> stat = read_process_stat(pid);
  return stat && (stat->state == 'T' || stat->state == 't');
}

std::uint64_t pid_namespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? static_cast<std::uint64_t>(info.st_ino) : 0;
}

}  // namespace tutti::control
