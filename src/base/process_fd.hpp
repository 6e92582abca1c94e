// SPDX-License-Identifier: Apache-2.0
// File descriptors that belong to one process: closed by themselves in a forked child.
//
// A child that kept its parent's sockets would keep a dead rank looking alive: its peers see no end
// of file while any copy of a socket is open. So every descriptor here is entered in a process-wide
// table in the same critical section that opens it, and a fork handler closes the table's entries
// in the child. Owners that the child inherited then hold a descriptor of an older generation and
// leave it alone. Any thread. Knows nothing of what the descriptors are for.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

namespace tutti {

// Counts the forks between the first process and this one. Never 0.
[[nodiscard]] std::uint64_t fork_generation();
namespace process_detail {
// Written in a forked child before it has a second thread; relaxed, pairs with nothing.
extern std::atomic<std::uint64_t> generation;
}  // namespace process_detail
// Is it this process's? For one that fork_generation() has told.
[[nodiscard]] inline bool is_fork_generation(std::uint64_t generation) {
  return process_detail::generation.load(std::memory_order_relaxed) == generation;
}

// Guards process-wide registries. Held across fork, so a child never inherits it locked by a thread
// that it does not have. Opening and closing a ProcessFd while holding it is allowed.
[[nodiscard]] std::mutex& process_registry_mutex();

class ProcessFd {
 public:
  ProcessFd() = default;
  ProcessFd(ProcessFd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_) {}
  ProcessFd& operator=(ProcessFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      generation_ = other.generation_;
    }
    return *this;
  }
  ProcessFd(const ProcessFd&) = delete;
  ProcessFd& operator=(const ProcessFd&) = delete;
  ~ProcessFd() { reset(); }

  // Runs `open`, which returns a descriptor or -1 with errno, and owns its result. No fork comes
  // in between. errno is kept.
  template <typename Open>
  [[nodiscard]] static ProcessFd from(Open&& open) {
    const std::lock_guard lock(table_mutex());
    ProcessFd owner;
    owner.fd_ = open();
    owner.generation_ = enter(owner.fd_);
    return owner;
  }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }
  // False in a forked child that inherited this owner.
  [[nodiscard]] bool of_this_process() const { return generation_ == fork_generation(); }
  void reset();

 private:
  friend class ForeignFd;
  [[nodiscard]] static std::mutex& table_mutex();
  [[nodiscard]] static std::uint64_t enter(int fd);  // with table_mutex held

  int fd_ = -1;
  std::uint64_t generation_ = 0;
};

// For a descriptor that a library has opened and will close: a forked child's copy is closed as
// those above. Gone before the library closes it.
class ForeignFd {
 public:
  explicit ForeignFd(int fd);
  ForeignFd(ForeignFd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_) {}
  ForeignFd& operator=(ForeignFd&&) = delete;
  ~ForeignFd();

 private:
  int fd_;
  std::uint64_t generation_;
};

}  // namespace tutti
