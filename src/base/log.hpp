// SPDX-License-Identifier: Apache-2.0
// The log: one line per event, "tutti 2026-11-21T14:30:12.345678Z host:pid:rank level message", to
// stderr or a file; the time is UTC, so that lines of many hosts sort.
//
//   TUTTI_LOG(log, LogLevel::kInfo, "plan {:016x}: {} lanes", plan.id, plan.lanes.size());
//
// A line is one write(2), so lines of threads and processes never mix. A level that is off costs
// one load and one branch; its arguments are not evaluated. At the default level (warn) a healthy
// run prints nothing. Never throws, never exits: a line that cannot be written is dropped.
// Any thread. Knows nothing of configuration; its owner opens it with a level and a path.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.hpp"
#include "base/result.hpp"

namespace tutti {

// kVersion: one line a process that says which library this is, besides the warnings.
enum class LogLevel : std::uint8_t { kOff, kError, kWarn, kVersion, kInfo, kTrace };
inline constexpr int kLogLevelCount = 6;
[[nodiscard]] std::string_view name_of(LogLevel level);
[[nodiscard]] std::optional<LogLevel> parse_log_level(std::string_view name);

// A line is cut after this many bytes (PIPE_BUF: the largest write that is atomic on a pipe).
inline constexpr std::size_t kLogLineBytes = 4096;

// `path` with %h replaced by the host's name and %p by the pid; %% is a percent sign.
[[nodiscard]] std::string expand_log_path(std::string_view path);

class Log {
 public:
  // To stderr at `level`; an off log for parts that are given none.
  explicit Log(LogLevel level = LogLevel::kOff, Rank rank = kNoRank);
  // To the file `path` (expanded, appended to); empty: stderr. Error: kSystemError naming the path.
  [[nodiscard]] static Result<Log> open(LogLevel level, std::string_view path, Rank rank = kNoRank);
  // The same destination and level with another rank in the prefix.
  [[nodiscard]] Log for_rank(Rank rank) const;

  [[nodiscard]] bool enabled(LogLevel level) const {
    return level != LogLevel::kOff && level <= level_;
  }
  [[nodiscard]] LogLevel level() const { return level_; }
  // One line; newlines in `message` become spaces. Drops it if the level is off.
  void write(LogLevel level, std::string_view message) const;

 private:
  LogLevel level_;
  Rank rank_;
  std::string host_;
  std::shared_ptr<const UniqueFd> file_;  // null: stderr
};

}  // namespace tutti

// Formats only if `level` is on.
#define TUTTI_LOG(log, level_value, ...)                         \
  do {                                                           \
    const ::tutti::Log& tutti_log_ = (log);                      \
    if (tutti_log_.enabled(level_value))                         \
      tutti_log_.write(level_value, ::fmt::format(__VA_ARGS__)); \
  } while (0)
