// SPDX-License-Identifier: Apache-2.0
// One rank's way through a cell of the failure table.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <tutti/tutti.hpp>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "failure_cells.hpp"
#include "forked_job.hpp"
#include "hardship.hpp"
#include "held_call.hpp"
#include "resources.hpp"

namespace tutti::test {

using testing::ForkedRank;

inline constexpr std::size_t kLarge = 1 << 20;  // elements of the large all-reduce

// What the ranks of one cell share with the parent.
struct Record : RankRecord {
  std::atomic<bool> arrived, regrouped;  // at its shrink or split; back from there
};
struct Shared {
  std::atomic<std::int32_t> victim_pid;
  std::atomic<Phase> victim_in;  // the phase of the call that it is in, also once it is dead
  std::atomic<bool> hit;         // the fault meets it at a counted call of the system
  Record of[kRanks];
};

// Where in the call a fault hits that comes inside one.
enum class Point {
  kMoment,   // a random while after the call has begun, or after its end
  kCounted,  // a random call of the system in it, or none
  kFirst,    // its first one, which an all-reduce needs at the latest where it waits for the others
};

// One rank's way through everything; the victim meets its fault on it.
class Script {
 public:
  Script(const ForkedRank& self, Shared& shared, const Cell& cell, unsigned seed, bool for_certain)
      : self_(self),
        record_(shared.of[self.rank]),
        victim_(self.rank == cell.row.victim),
        fault_(cell.fault()),
        phase_(cell.phase),
        cell_(cell),
        random_(seed),
        for_certain_(for_certain),
        point_(for_certain          ? Point::kFirst
               : random_() % 2 == 0 ? Point::kMoment
                                    : Point::kCounted),
        shared_(shared) {}

  void run() {
    if (victim_) shared_.victim_pid = ::getpid();
    std::thread([] {}).join();  // the first brings ThreadSanitizer's own
    record_.before = resources();
    record_.code = tuttiSuccess;
    try {
      steps();
    } catch (const std::logic_error&) {
      // The victim's own: its communicator has been destroyed on the way here.
    }
    if (comm_ != nullptr) {
      if (!victim_ && record_.code != tuttiSuccess && poisons()) ask_again();
      end(std::exchange(part_, nullptr));
      end(std::exchange(comm_, nullptr));
    }
    record_.arrived = record_.regrouped = true;
    threads_.clear();
    exhausted_.reset();
    for (const auto& [what, limit] : limits_) EXPECT_EQ(::setrlimit(what, &limit), 0);
    record_.after = settled(record_.before);
    record_.done = true;
    if (victim_ && fault_ == Fault::kMissing) await_others();
  }

 private:
  void steps() {
    if (!at(Phase::kBeforeInit, Phase::kInInit)) return;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.opTimeoutMs = cell_.op_timeout_ms();
    config.initTimeoutMs = cell_.init_timeout_ms();
    const int rank = is(Fault::kDoubled, Phase::kBeforeInit) ? 0 : self_.rank;
    if (!call(Phase::kInInit,
              [&] { return tuttiCommInitRankConfig(&comm_, kRanks, id_of(self_), rank, &config); }))
      return;
    if (!at(Phase::kConnect, Phase::kInConnect) || !all_reduce(Phase::kInConnect, 100)) return;
    for (int i = 0; i < 5; ++i)
      if (!all_reduce(Phase::kNone, 1000)) return;
    if (!at(Phase::kReduce, Phase::kInReduce)) return;
    for (int i = 0; i < 5; ++i)
      if (!all_reduce(Phase::kInReduce, kLarge)) return;
    if (cell_.regroups() && !regroup()) return;
    if (phase_ == Phase::kShrink || phase_ == Phase::kInShrink) return;  // comm_ is revoked
    if (phase_ >= Phase::kAbort && !abort_or_wait()) return;
    if (!at(Phase::kFinalize, Phase::kInFinalize)) return;
    call(Phase::kInFinalize, [&] { return tuttiCommFinalize(comm_); });
    static_cast<void>(at(Phase::kAfterFinalize, Phase::kNone));
  }

  // A communicator of the same ranks, but for those that a shrink leaves behind. It must work.
  bool regroup() {
    const bool splits = phase_ <= Phase::kInSplit;
    const Phase inside = splits ? Phase::kInSplit : Phase::kInShrink;
    record_.arrived = true;  // a shrink ends the operations of who has not
    for (const Record& record : shared_.of)
      while (!record.arrived.load()) ::sched_yield();
    if (!at(splits ? Phase::kSplit : Phase::kShrink, inside)) return false;
    const bool made = call(inside, [&] {
      return splits ? tuttiCommSplit(comm_, 0, 0, &part_, nullptr)
                    : tuttiCommShrink(comm_, nullptr, 0, &part_, nullptr, TUTTI_SHRINK_ABORT);
    });
    await_regrouped();
    if (!made) return false;
    int ranks = 0;
    EXPECT_EQ(tuttiCommCount(part_, &ranks), tuttiSuccess);

    const bool gone = cell_.dies() || fault_ == Fault::kThrow;
    if (phase_ != Phase::kInShrink) {
      EXPECT_EQ(ranks, phase_ == Phase::kShrink && gone ? kRanks - 1 : kRanks);
    }
    std::swap(comm_, part_);
    const bool works = all_reduce(Phase::kNone, 1000);
    std::swap(comm_, part_);
    return works;
  }

  void end(tuttiComm_t comm) {
    if (comm == nullptr) return;
    call(Phase::kInFinalize, [&] {
      return record_.code == tuttiSuccess ? tuttiCommDestroy(comm) : tuttiCommAbort(comm);
    });
  }

  // Who gave up and left before the others have come would be left behind.
  void await_regrouped() {
    record_.regrouped = true;
    for (int rank = 0; rank < kRanks; ++rank)
      while (rank != cell_.row.victim && !shared_.of[rank].regrouped.load()) ::sched_yield();
  }

  // Is the communicator itself lost, and not only what was to be made of it?
  [[nodiscard]] bool poisons() const {
    return !cell_.regroups() || (phase_ == Phase::kSplit && !cell_.lacks());
  }

  // A communicator that has failed says so ever after.
  void ask_again() {
    tuttiResult_t state = tuttiSuccess;
    float data = 0;
    record_.changed =
        tuttiCommGetAsyncError(comm_, &state) != tuttiSuccess || state != record_.code ||
        tuttiAllReduce(&data, &data, 1, tuttiFloat, tuttiSum, comm_, nullptr) != record_.code;
  }

  [[nodiscard]] bool is(Fault fault, Phase phase) const {
    return victim_ && fault_ == fault && phase_ == phase;
  }

  // False: this rank goes no further.
  bool at(Phase before, Phase inside) {
    if (!victim_) return true;
    if (phase_ == inside && point_ == Point::kMoment) meet_at_some_moment();
    if (phase_ != before) return true;
    switch (fault_) {
      case Fault::kThrow: {
        const Communicator owner(std::exchange(comm_, nullptr));
        throw std::logic_error("an exception of the program");
      }
      case Fault::kDescriptors:
        limit(RLIMIT_NOFILE, lowest_free_descriptor() + cell_.row.left);
        return true;
      case Fault::kSpace:
        ::signal(SIGXFSZ, SIG_IGN);
        limit(RLIMIT_FSIZE, 0);
        return true;
      case Fault::kMemory:
        exhausted_.emplace();
        return true;
      case Fault::kMissing:
        await_others();
        return false;
      case Fault::kKill:
      case Fault::kStop:
      case Fault::kExit:
        meet();
        return true;
      default:
        return true;
    }
  }

  void meet() {
    if (fault_ == Fault::kKill) ::raise(SIGKILL);
    if (fault_ == Fault::kStop) ::kill(::getpid(), SIGSTOP);
    if (fault_ == Fault::kExit) ::exit(0);
  }

  // In this thread, within a call of the library. A program does not exit there by itself: another
  // thread does, while this one is on its way.
  void meet_here() {
    shared_.hit = true;
    if (fault_ == Fault::kExit) {
      threads_.reserve(1);
      threads_.emplace_back([] { ::exit(0); });
      for (;;) ::pause();  // asking for nothing: the leak sanitizer locks its allocator at exit
    }
    meet();
  }

  // Calls differ in length: 1 is as likely as all from 65 to 128.
  unsigned some_call() { return 1 + static_cast<unsigned>(random_() % (1u << random_() % 8)); }

  // In another thread, at a random point of the calls that follow.
  void meet_at_some_moment() {
    const auto spins = static_cast<unsigned>(random_() % (1u << (random_() % 22)));
    threads_.emplace_back([this, spins](const std::stop_token& over) {
      while (shared_.victim_in.load() != phase_ && !over.stop_requested()) ::sched_yield();
      std::atomic<unsigned> count{0};
      while (count.fetch_add(1) < spins) {
      }
      meet();
    });
  }

  // The lowest descriptor that is free: with a limit there the process gets none, whatever high
  // ones it inherited.
  static rlim_t lowest_free_descriptor() {
    const int lowest = ::dup(STDERR_FILENO);
    EXPECT_GE(lowest, 0);
    ::close(lowest);
    return static_cast<rlim_t>(lowest);
  }

  void limit(decltype(RLIMIT_NOFILE) what, rlim_t most) {
    rlimit now{};
    ASSERT_EQ(::getrlimit(what, &now), 0);
    limits_.emplace_back(what, now);
    now.rlim_cur = most;
    ASSERT_EQ(::setrlimit(what, &now), 0);
  }

  // The victim aborts, and meets its fault before or on the way; the others' next calls end.
  bool abort_or_wait() {
    if (victim_) {
      static_cast<void>(at(Phase::kAbort, Phase::kInAbort));
      call(Phase::kInAbort, [&] { return tuttiCommAbort(std::exchange(comm_, nullptr)); });
      await_others();
      return false;
    }
    for (;;)
      if (!all_reduce(Phase::kNone, 1000)) return false;
  }

  bool all_reduce(Phase inside, std::size_t count) {
    const bool wrong = victim_ && ((inside == Phase::kInConnect && phase_ == Phase::kConnect) ||
                                   (inside == Phase::kInReduce && phase_ == Phase::kReduce));
    if (wrong && fault_ == Fault::kCount) ++count;
    const auto type = wrong && fault_ == Fault::kType ? tuttiInt32 : tuttiFloat;
    const auto op = wrong && fault_ == Fault::kOp ? tuttiMax : tuttiSum;
    return call(inside, [&] {
      return tuttiAllReduce(data_.data(), data_.data(), count, type, op, comm_, nullptr);
    });
  }

  template <typename Body>
  bool call(Phase inside, Body&& body) {
    const std::int64_t start = now_ns();
    const bool counts = victim_ && inside == phase_ && point_ != Point::kMoment && cell_.inside();
    if (!victim_ && for_certain_ && inside == phase_) await_victim();
    if (victim_) shared_.victim_in = inside;
    if (counts) hold_at_call(point_ == Point::kFirst ? 1 : some_call(), [this] { meet_here(); });
    const tuttiResult_t code = body();
    if (counts) release_calls();
    if (victim_) shared_.victim_in = Phase::kNone;
    record_.took_ns = std::max(record_.took_ns, now_ns() - start);
    if (code != tuttiSuccess && record_.code == tuttiSuccess) {
      record_.code = code;
      std::strncpy(record_.text, tuttiGetLastError(nullptr), sizeof record_.text - 1);
    }
    return code == tuttiSuccess;
  }

  // Until the fault has hit: where the victim has to wait for nobody, its call may ask the system
  // for nothing, and the others may have ended before it leaves, and end it where it is to stop.
  void await_victim() const {
    if (phase_ != Phase::kInConnect && phase_ != Phase::kInReduce && phase_ != Phase::kInFinalize)
      return;
    while (!shared_.hit.load()) ::sched_yield();
  }

  void await_others() const {
    for (int rank = 0; rank < kRanks; ++rank)
      while (rank != self_.rank && !shared_.of[rank].done.load()) ::sched_yield();
  }

  const ForkedRank& self_;
  Record& record_;
  const bool victim_;
  const Fault fault_;
  const Phase phase_;
  const Cell& cell_;
  std::mt19937 random_;
  const bool for_certain_;
  const Point point_;  // after random_, which draws it
  Shared& shared_;
  tuttiComm_t comm_ = nullptr, part_ = nullptr;
  std::vector<float> data_ = std::vector<float>(kLarge + 1);
  std::vector<std::jthread> threads_;
  std::optional<Exhausted> exhausted_;
  std::vector<std::pair<decltype(RLIMIT_NOFILE), rlimit>> limits_;  // as they were
};

}  // namespace tutti::test
