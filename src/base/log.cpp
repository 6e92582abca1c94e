#include "base/log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include "base/host.hpp"

namespace tutti {
namespace {

constexpr std::array<std::string_view, kLogLevelCount> kLevels{"off",     "error", "warn",
                                                               "version", "info",  "trace"};

// "2026-11-21T14:30:12.345678Z"; no library call that takes a lock or reads the time zone.
void append_time(fmt::memory_buffer& line) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  std::tm parts{};
  ::gmtime_r(&now.tv_sec, &parts);
  fmt::format_to(std::back_inserter(line), "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
                 parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min,
                 parts.tm_sec, now.tv_nsec / 1000);
}

}  // namespace

std::string_view name_of(LogLevel level) { return kLevels[static_cast<std::size_t>(level)]; }

std::optional<LogLevel> parse_log_level(std::string_view name) {
  for (std::size_t i = 0; i < kLevels.size(); ++i)
    if (kLevels[i] == name) return static_cast<LogLevel>(i);
  return std::nullopt;
}

std::string expand_log_path(std::string_view path) {
  std::string expanded;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const char next = path[i] == '%' && i + 1 < path.size() ? path[i + 1] : '\0';
    if (next == 'h') expanded += host_name();
    if (next == 'p') expanded += std::to_string(::getpid());
    if (next == '%') expanded += '%';
    if (next == 'h' || next == 'p' || next == '%')
      ++i;
    else
      expanded += path[i];
  }
  return expanded;
}

Log::Log(LogLevel level, Rank rank) : level_(level), rank_(rank), host_(host_name()) {}

Result<Log> Log::open(LogLevel level, std::string_view path, Rank rank) {
  Log log(level, rank);
  if (path.empty() || level == LogLevel::kOff) return log;
  const std::string expanded = expand_log_path(path);
  UniqueFd fd(::open(expanded.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd) return errno_error(fmt::format("cannot open the log file {}", expanded), errno);
  log.file_ = std::make_shared<const UniqueFd>(std::move(fd));
  return log;
}

Log Log::for_rank(Rank rank) const {
  Log log = *this;
  log.rank_ = rank;
  return log;
}

void Log::write(LogLevel level, std::string_view message) const {
  if (!enabled(level)) return;
  fmt::memory_buffer line;
  const std::string rank = rank_ == kNoRank ? "-" : std::to_string(rank_);
  fmt::format_to(std::back_inserter(line), "tutti ");
  append_time(line);
  fmt::format_to(std::back_inserter(line), " {}:{}:{} {} ", host_, ::getpid(), rank,
                 name_of(level));
  line.append(message.substr(0, kLogLineBytes));
  std::replace(line.begin(), line.end(), '\n', ' ');
  line.resize(std::min(line.size(), kLogLineBytes - 1));
  line.push_back('\n');
  const int saved_errno = errno;
  const int fd = file_ ? file_->get() : STDERR_FILENO;
  while (::write(fd, line.data(), line.size()) < 0 && errno == EINTR) {
  }
  errno = saved_errno;
}

}  // namespace tutti
