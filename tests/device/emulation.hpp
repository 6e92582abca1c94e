// SPDX-License-Identifier: Apache-2.0
// Blocks of device threads, emulated by threads of the host: the interpreter's own code, with
// barriers of std::barrier, whose order ThreadSanitizer checks. What a thread waits for is counted.
// Eight threads share an LL128 line as on a device, with no more order than a transport promises:
// a line becomes visible in parts, the flag last, and its parts are loaded at different times.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "device/rank.hpp"

namespace tutti::test {

// What one thread of a block did one after the other, from the launch to its end.
struct Costs {
  std::uint64_t barriers = 0, fences = 0, loads = 0;
  // Of each the most.
  void take_most(const Costs& other) {
    barriers = std::max(barriers, other.barriers);
    fences = std::max(fences, other.fences);
    loads = std::max(loads, other.loads);
  }
};

// A vote of a fixed number of threads, and a barrier of theirs.
class Ballot {
 public:
  explicit Ballot(std::uint32_t voters) : barrier_(voters, Count{this}) {}
  [[nodiscard]] bool all(bool mine) {
    if (!mine) vetoed_.store(true);
    barrier_.arrive_and_wait();
    return agreed_;
  }

 private:
  struct Count {
    Ballot* ballot;
    void operator()() noexcept { ballot->agreed_ = !ballot->vetoed_.exchange(false); }
  };
  std::atomic<bool> vetoed_{false};
  bool agreed_ = false;  // written while all wait
  std::barrier<Count> barrier_;
};

class EmulatedBlock {
 public:
  static constexpr int kLanes = 1;
  static constexpr std::uint32_t kLooks = 2;  // few, so that lines are late
  static constexpr std::uint32_t kLineThreads = line_shape(PacketFormat::kLl128).threads;

  // What the threads of a block share.
  class Common {
   public:
    Common(std::uint32_t threads, std::uint32_t threads_in_warp, std::uint32_t room_bytes)
        : warp(std::min(threads, threads_in_warp)),
          barrier(threads, Forget{this}),
          warp_vote(warp),
          room(room_bytes / sizeof(Line)) {
      for (std::uint32_t end = kLineThreads; end <= threads; end += kLineThreads)
        line_votes.emplace_back(kLineThreads);
    }
    // All threads of a block meet at one place in the program: CUDA leaves undefined what a barrier
    // at two does, and hardware only counts.
    void meet(std::uint64_t place) {
      const std::uint64_t others = meeting.exchange(place);
      EXPECT_TRUE(others == 0 || others == place) << "threads of a block wait at two barriers";
      barrier.arrive_and_wait();
    }
    // How many barriers a thread came to before it ended: as many as the others.
    void end(std::uint64_t barriers) {
      const std::uint64_t others = met.exchange(barriers + 1);
      EXPECT_TRUE(others == 0 || others == barriers + 1) << "a thread came to fewer barriers";
    }
    struct Forget {
      Common* common;
      void operator()() noexcept { common->meeting.store(0); }
    };
    const std::uint32_t warp;
    std::atomic<std::uint64_t> meeting{0};  // where those that have come wait; 0: nobody has
    std::atomic<std::uint64_t> met{0};      // by those that have ended, and 1; 0: none has
    std::barrier<Forget> barrier;
    Ballot warp_vote;
    std::deque<Ballot> line_votes;        // of every eight threads
    std::atomic<std::uint32_t> ended{0};  // threads
    device::Shared shared;
    struct alignas(64) Line {
      std::byte bytes[64];
    };
    std::vector<Line> room;
  };

  EmulatedBlock(std::uint32_t block, std::uint32_t blocks, std::uint32_t thread,
                std::uint32_t threads, Common& common)
      : block_(block), blocks_(blocks), thread_(thread), threads_(threads), common_(common) {}

  [[nodiscard]] std::uint32_t block() const { return block_; }
  [[nodiscard]] std::uint32_t blocks() const { return blocks_; }
  [[nodiscard]] std::uint32_t thread() const { return thread_; }
  [[nodiscard]] std::uint32_t threads() const { return threads_; }
  [[nodiscard]] std::uint32_t warp() const { return common_.warp; }
  void sync(std::uint64_t line = __builtin_LINE(), const char* file = __builtin_FILE()) {
    fenced_ = false;
    ++costs_.barriers;
    common_.meet(reinterpret_cast<std::uintptr_t>(file) << 16 ^ line);
  }
  void warp_sync() { static_cast<void>(all(true)); }
  [[nodiscard]] bool all(bool mine) { return common_.warp_vote.all(mine); }
  [[nodiscard]] bool line_all(bool mine) {
    return common_.line_votes[thread_ / kLineThreads].all(mine);
  }
  // The last thread's store is seen after the others'.
  template <class Function>
  void line_store(Function&& function) {
    if (!last_of_line()) function();
    static_cast<void>(line_all(true));
    if (last_of_line()) function();
  }
  void pause() { ::sched_yield(); }
  [[nodiscard]] std::uint64_t now_ns() { return static_cast<std::uint64_t>(tutti::now_ns()); }
  [[nodiscard]] device::Shared& shared() { return common_.shared; }
  [[nodiscard]] std::byte* room() { return common_.room.data()->bytes; }
  [[nodiscard]] std::uint32_t room_bytes() const {
    return static_cast<std::uint32_t>(common_.room.size() * sizeof(Common::Line));
  }

  [[nodiscard]] std::uint64_t load(const Word& word) {
    ++costs_.loads;
    return word.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t acquire(const Word& word) {
    ++costs_.loads;
    return word.load(std::memory_order_acquire);
  }
  void store(Word& word, std::uint64_t value) { word.store(value, std::memory_order_relaxed); }
  // ThreadSanitizer knows no fences: what they order is released by each store behind them.
  void fence() {
    ++costs_.fences;
    fenced_ = true;
  }
  void publish(Word& word, std::uint64_t value) {
    EXPECT_TRUE(fenced_) << "published without a fence";
    word.store(value, std::memory_order_release);
  }
  std::uint64_t add(Word& word) {
    ++costs_.fences;
    ++costs_.loads;
    return word.fetch_add(1);
  }
  template <class Function>
  void together(Function&& function) {
    // The flag of an LL128 line is loaded later than the payload, with time for a sender between.
    if (last_of_line()) pause();
    const std::uint64_t before = costs_.loads;
    function();
    costs_.loads = before + 1;
  }
  template <class Function>
  bool attempt(Function&& function) {
    const std::uint64_t before = costs_.loads;
    const bool succeeded = function();
    if (!succeeded) costs_.loads = before;
    return succeeded;
  }
  template <class Function>
  void look(Function&& function) {
    while (!attempt(function)) {
    }
  }
  [[nodiscard]] const Costs& costs() const { return costs_; }

 private:
  [[nodiscard]] bool last_of_line() const { return thread_ % kLineThreads == kLineThreads - 1; }

  std::uint32_t block_, blocks_, thread_, threads_;
  Common& common_;
  Costs costs_;
  bool fenced_ = false;
};

// Of a kernel that moves packets, or of one for all else.
template <bool in_packets>
class InterpreterBlock : public EmulatedBlock {
 public:
  using EmulatedBlock::EmulatedBlock;
  static constexpr bool kPackets = in_packets;
};

// The blocks that a device runs at once, begun in order.
class Residency {
 public:
  explicit Residency(int blocks) : free_(blocks) {}
  void enter() {
    std::unique_lock lock(mutex_);
    const std::uint64_t turn = next_++;
    changed_.wait(lock, [&] { return free_ > 0 && turn == turn_; });
    --free_;
    ++turn_;
    changed_.notify_all();
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    ++free_;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int free_;
  std::uint64_t next_ = 0, turn_ = 0;
};

// A launch: blocks of every task at once, each of `threads` threads. Ends when all have.
struct Launch {
  std::uint32_t blocks = 1;   // per task
  std::uint32_t threads = 1;  // with LL128 of whole lines: rounded up to eight
  std::uint32_t room_bytes = 20 << 10;
  std::uint32_t warp = 32;      // threads that look for work, if there are so many
  Residency* device = nullptr;  // null: as many blocks as there are
};
struct Launched {
  device::Common common;
  device::LaunchTask task;
};
// Returns the most that a thread did of each.
template <class Fold>
Costs launch(Launch shape, const std::vector<Launched>& tasks) {
  constexpr std::uint32_t kLine = EmulatedBlock::kLineThreads;
  for (const Launched& one : tasks)
    if (one.task.bound->messages == device::Messages::kLl128)
      shape.threads = (shape.threads + kLine - 1) / kLine * kLine;
  std::vector<std::unique_ptr<EmulatedBlock::Common>> commons;
  std::mutex mutex;
  Costs most;
  {
    std::vector<std::jthread> running;
    for (const Launched& one : tasks)
      for (std::uint32_t block = 0; block < shape.blocks; ++block) {
        if (shape.device != nullptr) shape.device->enter();
        commons.push_back(
            std::make_unique<EmulatedBlock::Common>(shape.threads, shape.warp, shape.room_bytes));
        for (std::uint32_t thread = 0; thread < shape.threads; ++thread)
          running.emplace_back([&, &common = *commons.back(), block, thread] {
            const auto run = [&](auto self) {
              device::run_task<Fold>(self, one.common, one.task);
              return self.costs();
            };
            const Costs costs = device::in_packets(one.task.bound->messages)
                                    ? run(InterpreterBlock<true>(block, shape.blocks, thread,
                                                                 shape.threads, common))
                                    : run(InterpreterBlock<false>(block, shape.blocks, thread,
                                                                  shape.threads, common));
            common.end(costs.barriers);
            if (shape.device != nullptr && common.ended.fetch_add(1) + 1 == shape.threads)
              shape.device->leave();
            const std::lock_guard lock(mutex);
            most.take_most(costs);
          });
      }
  }
  return most;
}

}  // namespace tutti::test
