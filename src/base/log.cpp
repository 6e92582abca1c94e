// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
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

// "/dev/stderr", "/proc/self/fd/7": the number of a descriptor of this process.
std::optional<int> descriptor_named(std::string_view path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    const std::string_view digits = path.substr(folder.size());
    int number = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error == std::errc{} && end == digits.data() + digits.size() && number >= 0) return number;
  }
  return std::nullopt;
}

// The file may lie in a folder where others may write: a symbolic link is not followed, and what is
// neither a file nor a character device, as a pipe, is refused instead of waited for.
// "/dev/stdout", "/dev/stderr", "/dev/fd/N" and "/proc/self/fd/N" are this process's descriptors of
// that number, whatever they lead to.
Result<UniqueFd> open_log_file(const std::string& path) {
  const std::string failed = fmt::format("cannot open the log file {}", path);
  if (const std::optional<int> number = descriptor_named(path)) {
    UniqueFd copy(::fcntl(*number, F_DUPFD_CLOEXEC, 0));
    if (!copy) return errno_error(failed, errno);
    return copy;
  }
  constexpr int kFlags =
      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  UniqueFd fd(::open(path.c_str(), kFlags, 0600));
  if (!fd && errno == ELOOP)
    return make_error(Code::kSystemError, failed + ": it is a symbolic link; give the file's path");
  struct stat info {};
  const bool pipe = !fd && errno == ENXIO;  // that nobody reads; or a socket
  if (!pipe && (!fd || ::fstat(fd.get(), &info) != 0)) return errno_error(failed, errno);
  if (pipe || (!S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode)))
    return make_error(Code::kSystemError,
                      failed + ": it is not a regular file; give the path of one");
  return fd;
}

// SIGPIPE, where nobody reads what is written any more, and SIGXFSZ, where a file has reached its
// limit, go to the thread that writes. Blocked for a scope, and taken back if raised in it.
class MutedSignals {
 public:
  MutedSignals() {
    ::sigemptyset(&muted_);
    ::sigaddset(&muted_, SIGPIPE);
    ::sigaddset(&muted_, SIGXFSZ);
    ::sigemptyset(&pending_);
    ::sigpending(&pending_);
    ::pthread_sigmask(SIG_BLOCK, &muted_, &before_);
  }
  MutedSignals(const MutedSignals&) = delete;
  MutedSignals& operator=(const MutedSignals&) = delete;
  ~MutedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  // After a write that failed so.
  void take_back(int error_number) const {
    const int raised = error_number == EPIPE ? SIGPIPE : error_number == EFBIG ? SIGXFSZ : 0;
    if (raised == 0 || ::sigismember(&pending_, raised) == 1)
      return;  // that one is somebody else's
    sigset_t only;
    ::sigemptyset(&only);
    ::sigaddset(&only, raised);
    const timespec now{};
    while (::sigtimedwait(&only, nullptr, &now) < 0 && errno == EINTR) {
    }
  }

 private:
  sigset_t muted_{}, pending_{}, before_{};
};

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
  TUTTI_TRY_ASSIGN(UniqueFd fd, open_log_file(expanded));
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
  const MutedSignals muted;
  ssize_t written = ::write(fd, line.data(), line.size());
  while (written < 0 && errno == EINTR) written = ::write(fd, line.data(), line.size());
  if (written < 0) muted.take_back(errno);
  errno = saved_errno;
}

}  // namespace tutti
