// SPDX-License-Identifier: Apache-2.0
#include "jobs.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "base/host.hpp"
#include "board/flight_file.hpp"
#include "control/process_stat.hpp"

namespace tutti::info {
namespace {

ProcessState process_state(const control::BoardView& board, const control::RankView& rank) {
  if (board.boot != boot_identity()) return ProcessState::kGone;
  if (rank.pid <= 0 || rank.pid_namespace != control::pid_namespace())
    return ProcessState::kUnknown;
  const auto stat = control::read_process_stat(rank.pid);
  if (!stat)
    return ::kill(rank.pid, 0) != 0 && errno == ESRCH ? ProcessState::kGone
                                                      : ProcessState::kUnknown;
  if (stat->state == 'Z' || stat->state == 'X') return ProcessState::kGone;
  if (rank.start_ticks != 0 && stat->start_ticks != rank.start_ticks) return ProcessState::kGone;
  return stat->state == 'T' || stat->state == 't' ? ProcessState::kStopped : ProcessState::kRuns;
}

void add_job(Jobs& jobs, control::BoardView board, const std::string& source) {
  Job job{source, std::move(board), {}};
  for (const control::RankView& rank : job.board.here)
    job.processes.push_back(process_state(job.board, rank));
  jobs.jobs.push_back(std::move(job));
}

// The names that the kernel shows for a status page's descriptor: its memfd, its flight recorder's
// file, or one of the nameless files that take the memfd's place (shared_file.cpp).
bool may_be_board(std::string_view target) {
  if (target.starts_with("/memfd:tutti-board")) return true;
  if (control::has_flight_name(std::string(target))) return true;
  return target.ends_with(" (deleted)") &&
         (target.starts_with("/dev/shm/") || target.starts_with("/tmp/#"));
}

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

class Search {
 public:
  explicit Search(Jobs& jobs) : jobs_(jobs) {}

  void look_at_process(const std::string& pid) {
    const std::string path = "/proc/" + pid + "/fd";
    const Folder folder(::opendir(path.c_str()));
    if (!folder) {
      if (errno == EACCES) ++jobs_.hidden;
      return;
    }
    while (const dirent* entry = ::readdir(folder.get()))
      if (is_number(entry->d_name)) look_at_descriptor(path + "/" + entry->d_name);
  }

 private:
  void look_at_descriptor(const std::string& path) {
    std::array<char, PATH_MAX> target;
    const ssize_t got = ::readlink(path.c_str(), target.data(), target.size());
    if (got <= 0 || !may_be_board({target.data(), static_cast<std::size_t>(got)})) return;
    struct stat info {};
    // Before it is opened: opening a pipe or a device may wait or do something.
    if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
    if (!seen_.insert({info.st_dev, info.st_ino}).second) return;
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fd) return;
    Result<control::BoardView> board = control::read_board(fd.get(), path);
    // A file that is not a status page may be one that its maker has not begun to write.
    if (board)
      add_job(jobs_, *std::move(board), path);
    else if (board.error().code != Code::kInvalidArgument)
      jobs_.problems.push_back(board.error().message);
  }

  Jobs& jobs_;
  std::set<std::pair<dev_t, ino_t>> seen_;
};

}  // namespace

Jobs find_jobs() {
  Jobs jobs;
  Search search(jobs);
  const Folder processes(::opendir("/proc"));
  if (!processes) jobs.problems.emplace_back("cannot read /proc, so no job can be found");
  while (const dirent* entry = processes ? ::readdir(processes.get()) : nullptr)
    if (is_number(entry->d_name)) search.look_at_process(entry->d_name);
  // Oldest first, whatever process it was found in.
  std::ranges::stable_sort(jobs.jobs, [](const Job& a, const Job& b) {
    return std::pair(a.board.made_realtime_ns, a.board.session) <
           std::pair(b.board.made_realtime_ns, b.board.session);
  });
  return jobs;
}

Jobs read_jobs(const std::vector<std::string>& files) {
  Jobs jobs;
  for (const std::string& file : files) {
    const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fd) {
      jobs.problems.push_back(
          errno_error(fmt::format("cannot open {}", file), errno).value().message);
      continue;
    }
    Result<control::BoardView> board = control::read_board(fd.get(), file);
    if (board)
      add_job(jobs, *std::move(board), file);
    else
      jobs.problems.push_back(board.error().message);
  }
  return jobs;
}

Moment moment_now() {
  return {.monotonic_ns = now_ns(),
          .realtime_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                             std::chrono::system_clock::now().time_since_epoch())
                             .count(),
          .boot = boot_identity()};
}

std::int64_t age_ns(const control::BoardView& board, const Moment& now, std::int64_t at_ns) {
  // Works with unsigned numbers, since any of them may be nonsense.
  const auto number = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const std::uint64_t age = board.boot == now.boot
                                ? number(now.monotonic_ns) - number(at_ns)
                                : number(now.realtime_ns) - number(board.made_realtime_ns) +
                                      number(board.made_monotonic_ns) - number(at_ns);
  return std::max<std::int64_t>(static_cast<std::int64_t>(age), 0);
}

}  // namespace tutti::info
