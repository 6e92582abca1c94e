// SPDX-License-Identifier: Apache-2.0
#include "common/launch.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

namespace tutti::perf {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Whole buffers over pipes; false on end of file or error. SIGPIPE is ignored by launch().
bool write_all(int fd, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}
bool read_all(int fd, void* data, std::size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::read(fd, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

// The job's first failure, in memory that its processes share since before the first fork.
class FirstFailure {
 public:
  bool claim(const std::string& what) {
    State expected = State::kNone;
    // Relaxed: the text is published by the store below.
    if (!state_.compare_exchange_strong(expected, State::kClaimed, std::memory_order_relaxed))
      return false;
    const std::size_t bytes = std::min(what.size(), kMaxFailureText);
    std::memcpy(text_, what.data(), bytes);
    bytes_ = bytes;
    state_.store(State::kSet, std::memory_order_release);  // pairs with the acquire in text()
    return true;
  }
  [[nodiscard]] std::string text() const {
    return state_.load(std::memory_order_acquire) == State::kSet ? std::string(text_, bytes_) : "";
  }

 private:
  enum class State : std::uint32_t { kNone, kClaimed, kSet };
  static_assert(std::atomic<State>::is_always_lock_free);  // or it would not work between processes
  std::atomic<State> state_{State::kNone};
  std::size_t bytes_ = 0;
  char text_[kMaxFailureText] = {};
};

struct Unmap {
  void operator()(FirstFailure* failure) const { ::munmap(failure, sizeof(FirstFailure)); }
};
using SharedFailure = std::unique_ptr<FirstFailure, Unmap>;

SharedFailure share_failure() {
  void* const memory = ::mmap(nullptr, sizeof(FirstFailure), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return SharedFailure(memory == MAP_FAILED ? nullptr : new (memory) FirstFailure);
}

class JobBase : public Job {
 public:
  JobBase(int process, std::vector<pid_t> pids, std::int64_t start_ns, FirstFailure& failure)
      : process_(process), pids_(std::move(pids)), start_ns_(start_ns), failure_(failure) {}
  int process() const override { return process_; }
  int processes() const override { return static_cast<int>(pids_.size()); }
  const std::vector<pid_t>& pids() const override { return pids_; }
  std::int64_t start_ns() const override { return start_ns_; }
  bool claim_failure(const std::string& what) override { return failure_.claim(what); }
  std::string first_failure() const override { return failure_.text(); }

 protected:
  int process_;
  std::vector<pid_t> pids_;
  std::int64_t start_ns_;
  FirstFailure& failure_;
};

// Knows this process only: it is alone, or a launcher watches the others.
class LoneJob : public JobBase {
 public:
  LoneJob(int process, int processes, std::int64_t start_ns, FirstFailure& failure)
      : JobBase(process, std::vector<pid_t>(static_cast<std::size_t>(processes), 0), start_ns,
                failure) {
    pids_[static_cast<std::size_t>(process)] = ::getpid();
  }
  tuttiUniqueId share(const std::function<tuttiUniqueId()>& make) override { return make(); }
};

// A forked process. `down` brings the parent's pids and the id; `up` carries process 0's id, and
// its closing tells the parent that the process has ended.
class ForkedJob : public JobBase {
 public:
  ForkedJob(int process, std::vector<pid_t> pids, std::int64_t start_ns, FirstFailure& failure,
            std::pair<int, int> down_and_up)
      : JobBase(process, std::move(pids), start_ns, failure),
        down_(down_and_up.first),
        up_(down_and_up.second) {}
  tuttiUniqueId share(const std::function<tuttiUniqueId()>& make) override {
    tuttiUniqueId id{};
    if (process_ == 0) {
      id = make();
      if (!write_all(up_, &id, sizeof(id))) throw OtherEnded("the parent process has ended");
    } else if (!read_all(down_, &id, sizeof(id))) {
      throw OtherEnded("process 0 ended before it sent the unique id");
    }
    return id;
  }

 private:
  int down_, up_;
};

struct Child {
  pid_t pid = -1;
  int down = -1;  // parent writes
  int up = -1;    // parent reads; end of file: the process has ended
  std::optional<int> wait_status;
};

void say(const LaunchOptions& options, const std::string& text) {
  const std::string line = fmt::format("{}: {}\n", options.program, text);
  static_cast<void>(std::fputs(line.c_str(), stderr));
}

class Launcher {
 public:
  Launcher(const LaunchOptions& options, const std::function<int(Job&)>& body,
           FirstFailure& failure)
      : options_(options),
        body_(body),
        failure_(failure),
        children_(static_cast<std::size_t>(options.processes)) {}

  int run() {
    std::signal(SIGPIPE, SIG_IGN);
    std::fflush(nullptr);  // or every process would print what is buffered
    start_ns_ = now_ns();
    const pid_t parent = ::getpid();
    for (int process = 0; process < options_.processes; ++process) {
      if (!fork_one(process, parent)) {
        kill_all("could not be joined by all other processes");
        break;
      }
    }
    if (!failed_) send_pids();
    watch();
    return failed_ ? EXIT_FAILURE : EXIT_SUCCESS;
  }

 private:
  bool fork_one(int process, pid_t parent) {
    Child& child = children_[static_cast<std::size_t>(process)];
    int down[2], up[2];
    if (::pipe2(down, O_CLOEXEC) != 0) return fork_failed("pipe");
    if (::pipe2(up, O_CLOEXEC) != 0) {
      ::close(down[0]);
      ::close(down[1]);
      return fork_failed("pipe");
    }
    const pid_t pid = ::fork();
    if (pid == 0) run_child(process, parent, down, up);  // does not return
    ::close(down[0]);
    ::close(up[1]);
    child = {pid, down[1], up[0], std::nullopt};
    return pid > 0 || fork_failed("fork");
  }

  bool fork_failed(const char* what) {
    say(options_, fmt::format("{}: {}", what, std::strerror(errno)));
    failed_ = true;
    return false;
  }

  [[noreturn]] void run_child(int process, pid_t parent, const int down[2], const int up[2]) {
    std::signal(SIGPIPE, SIG_DFL);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) std::_Exit(EXIT_FAILURE);  // it died before the line above
    ::close(down[1]);
    ::close(up[0]);
    for (int earlier = 0; earlier < process; ++earlier) {
      ::close(children_[static_cast<std::size_t>(earlier)].down);
      ::close(children_[static_cast<std::size_t>(earlier)].up);
    }
    std::vector<pid_t> pids(children_.size());
    int status = EXIT_FAILURE;
    if (read_all(down[0], pids.data(), pids.size() * sizeof(pid_t))) {
      ForkedJob job(process, std::move(pids), start_ns_, failure_, {down[0], up[1]});
      status = body_(job);
    }
    std::exit(status);
  }

  void send_pids() {
    std::vector<pid_t> pids;
    for (const Child& child : children_) pids.push_back(child.pid);
    // A child that is gone is found by watch().
    for (const Child& child : children_)
      static_cast<void>(write_all(child.down, pids.data(), pids.size() * sizeof(pid_t)));
  }

  void watch() {
    std::size_t alive = 0;
    for (const Child& child : children_) alive += child.pid > 0 ? 1 : 0;
    while (alive > 0) {
      std::vector<pollfd> polls;
      std::vector<std::size_t> which;
      for (std::size_t i = 0; i < children_.size(); ++i) {
        if (children_[i].pid <= 0 || children_[i].wait_status) continue;
        polls.push_back({children_[i].up, POLLIN, 0});
        which.push_back(i);
      }
      const int ready = ::poll(polls.data(), polls.size(), poll_timeout_ms());
      if (ready < 0 && errno != EINTR) break;
      if (ready == 0) {
        kill_all("did not end after another process had ended");
        continue;
      }
      for (std::size_t k = 0; k < polls.size() && ready > 0; ++k) {
        if ((polls[k].revents & POLLIN) != 0 && which[k] == 0) {
          relay_id();
        } else if (polls[k].revents != 0) {
          reap(which[k]);
          --alive;
        }
      }
    }
    for (const Child& child : children_) {
      if (child.down >= 0) ::close(child.down);
      if (child.up >= 0) ::close(child.up);
    }
  }

  int poll_timeout_ms() const {
    if (!failed_ || killed_) return -1;  // a healthy run may take as long as it likes
    const std::int64_t left = deadline_ns_ - now_ns();
    return left <= 0 ? 0 : static_cast<int>(left / 1'000'000) + 1;
  }

  void relay_id() {
    tuttiUniqueId id{};
    if (!read_all(children_[0].up, &id, sizeof(id))) return;  // its end comes as POLLHUP
    for (std::size_t i = 1; i < children_.size(); ++i)
      if (children_[i].down >= 0) static_cast<void>(write_all(children_[i].down, &id, sizeof(id)));
  }

  // The child's pipe is closed: it is ending, so waiting for it is short.
  void reap(std::size_t index) {
    Child& child = children_[index];
    int status = 0;
    while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
    }
    child.wait_status = status;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    if (!failed_) deadline_ns_ = now_ns() + std::int64_t{options_.grace_ms} * 1'000'000;
    failed_ = true;
    if (index == 0) {  // nobody will send an id any more
      for (std::size_t i = 1; i < children_.size(); ++i) {
        ::close(children_[i].down);
        children_[i].down = -1;
      }
    }
    if (killed_) return;                                        // said already
    if (WIFEXITED(status) && !failure_.text().empty()) return;  // its body has said why
    const char* how = WIFSIGNALED(status) ? "was killed by signal" : "ended with status";
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    say(options_,
        fmt::format("{} {} {}{}", name_of(index), how, number,
                    WIFSIGNALED(status) ? fmt::format(" ({})", ::strsignal(number)) : ""));
  }

  // Only our own children, by pid, and only those that were not reaped: no pid can be another's.
  void kill_all(const char* why) {
    killed_ = failed_ = true;
    for (std::size_t i = 0; i < children_.size(); ++i) {
      if (children_[i].pid <= 0 || children_[i].wait_status) continue;
      say(options_, fmt::format("{} {}; it is killed", name_of(i), why));
      ::kill(children_[i].pid, SIGKILL);
    }
  }

  std::string name_of(std::size_t index) const {
    const int first = static_cast<int>(index) * options_.ranks_per_process;
    const int last = first + options_.ranks_per_process - 1;
    return first == last ? fmt::format("rank {} (pid {})", first, children_[index].pid)
                         : fmt::format("ranks {}-{} (pid {})", first, last, children_[index].pid);
  }

  const LaunchOptions& options_;
  const std::function<int(Job&)>& body_;
  FirstFailure& failure_;
  std::vector<Child> children_;
  std::int64_t start_ns_ = 0;
  std::int64_t deadline_ns_ = 0;
  bool failed_ = false;
  bool killed_ = false;
};

}  // namespace

int launch(const LaunchOptions& options, const std::function<int(Job&)>& body) {
  const SharedFailure failure = share_failure();
  if (!failure) {
    say(options, fmt::format("mmap: {}", std::strerror(errno)));
    return EXIT_FAILURE;
  }
  if (options.processes == 1 || options.launched_process) {
    LoneJob job(options.launched_process.value_or(0), options.processes, now_ns(), *failure);
    return body(job);
  }
  return Launcher(options, body, *failure).run();
}

}  // namespace tutti::perf
