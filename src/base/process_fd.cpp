// SPDX-License-Identifier: Apache-2.0
#include "base/process_fd.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <vector>

namespace tutti {
namespace {

struct Table {
  std::mutex registry_mutex;  // taken before fd_mutex, never after
  std::mutex fd_mutex;
  std::vector<bool> open;  // by descriptor; guarded by fd_mutex
};

Table& table();

void before_fork() {
  table().registry_mutex.lock();
  table().fd_mutex.lock();
}

void in_parent() {
  table().fd_mutex.unlock();
  table().registry_mutex.unlock();
}

void in_child() {
  for (std::size_t fd = 0; fd < table().open.size(); ++fd) {
    if (table().open[fd]) ::close(static_cast<int>(fd));
    table().open[fd] = false;
  }
  process_detail::generation.fetch_add(1, std::memory_order_relaxed);
  in_parent();
}

// Never destroyed: threads and static destructors may still close descriptors at exit.
Table& table() {
  static Table* const instance = new Table;
  static const int handlers = ::pthread_atfork(before_fork, in_parent, in_child);
  static_cast<void>(handlers);
  return *instance;
}

}  // namespace

std::atomic<std::uint64_t> process_detail::generation{1};

std::uint64_t fork_generation() {
  static_cast<void>(table());  // which counts forks from now on
  return process_detail::generation.load(std::memory_order_relaxed);
}

std::mutex& process_registry_mutex() { return table().registry_mutex; }

std::mutex& ProcessFd::table_mutex() { return table().fd_mutex; }

std::uint64_t ProcessFd::enter(int fd) {
  if (fd >= 0) {
    const auto index = static_cast<std::size_t>(fd);
    if (table().open.size() <= index) table().open.resize(index + 64, false);
    table().open[index] = true;
  }
  return fork_generation();
}

void ProcessFd::reset() {
  if (fd_ < 0) return;
  const int fd = std::exchange(fd_, -1);
  if (!of_this_process()) return;
  const std::lock_guard lock(table_mutex());
  table().open[static_cast<std::size_t>(fd)] = false;
  ::close(fd);
}

ForeignFd::ForeignFd(int fd) : fd_(fd) {
  const std::lock_guard lock(ProcessFd::table_mutex());
  generation_ = ProcessFd::enter(fd);
}

ForeignFd::~ForeignFd() {
  if (fd_ < 0 || generation_ != fork_generation()) return;
  const std::lock_guard lock(ProcessFd::table_mutex());
  table().open[static_cast<std::size_t>(fd_)] = false;
}

}  // namespace tutti
