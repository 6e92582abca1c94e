// SPDX-License-Identifier: Apache-2.0
// Blocks of device threads, emulated by threads of the host: the interpreter's own code, with a
// barrier of std::barrier, whose order ThreadSanitizer checks.
#pragma once

#include <sched.h>

#include <barrier>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "device/rank.hpp"

namespace tutti::test {

class EmulatedBlock {
 public:
  static constexpr int kLanes = 1;
  struct Common {
    explicit Common(std::uint32_t threads) : barrier(threads) {}
    std::barrier<> barrier;
    device::Shared shared;
  };

  EmulatedBlock(std::uint32_t block, std::uint32_t blocks, std::uint32_t thread,
                std::uint32_t threads, Common& common)
      : block_(block), blocks_(blocks), thread_(thread), threads_(threads), common_(common) {}

  [[nodiscard]] std::uint32_t block() const { return block_; }
  [[nodiscard]] std::uint32_t blocks() const { return blocks_; }
  [[nodiscard]] std::uint32_t thread() const { return thread_; }
  [[nodiscard]] std::uint32_t threads() const { return threads_; }
  void sync() { common_.barrier.arrive_and_wait(); }
  void pause() { ::sched_yield(); }
  [[nodiscard]] std::uint64_t now_ns() { return static_cast<std::uint64_t>(tutti::now_ns()); }
  [[nodiscard]] device::Shared& shared() { return common_.shared; }

 private:
  std::uint32_t block_, blocks_, thread_, threads_;
  Common& common_;
};

// A launch: blocks of every task at once, each of `threads` threads. Ends when all have.
struct Launch {
  std::uint32_t blocks = 1;  // per task
  std::uint32_t threads = 1;
};
struct Launched {
  device::Common common;
  device::LaunchTask task;
};
template <class Fold>
void launch(const Launch& shape, const std::vector<Launched>& tasks) {
  std::vector<std::unique_ptr<EmulatedBlock::Common>> commons;
  std::vector<std::jthread> running;
  for (const Launched& one : tasks)
    for (std::uint32_t block = 0; block < shape.blocks; ++block) {
      commons.push_back(std::make_unique<EmulatedBlock::Common>(shape.threads));
      for (std::uint32_t thread = 0; thread < shape.threads; ++thread)
        running.emplace_back([&one, &common = *commons.back(), shape, block, thread] {
          EmulatedBlock self(block, shape.blocks, thread, shape.threads, common);
          device::run_task<Fold>(self, one.common, one.task);
        });
    }
}

}  // namespace tutti::test
