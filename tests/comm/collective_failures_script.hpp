// SPDX-License-Identifier: Apache-2.0
// One rank's way through a cell of the table of failures by collective.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <stdexcept>
#include <thread>
#include <tutti/tutti.hpp>
#include <utility>

#include "base/clock.hpp"
#include "collective_failures_cells.hpp"
#include "forked_job.hpp"
#include "held_call.hpp"
#include "resources.hpp"

namespace tutti::test {

using testing::ForkedRank;

// What the ranks of one cell share with the parent.
struct Record : RankRecord {
  const char* slowest;  // what took longest
  std::atomic<bool> warm;
  bool before_failed;      // the call before the fault
  bool failed;             // the call that the fault met
  std::atomic<bool> told;  // has seen an error, or is not to
};
struct Shared {
  std::atomic<std::int32_t> victim_pid;
  std::atomic<bool> entered, hit;  // the victim's call; its fault, while that call was in flight
  Record of[kRanks];
};

// Does the victim meet its fault at a random point of the call, or certainly inside it: before the
// others have called?
enum class Point { kRandom, kCertain };

class Script {
 public:
  Script(const ForkedRank& self, Shared& shared, const Cell& cell, unsigned seed, Point point)
      : self_(self),
        shared_(shared),
        record_(shared.of[self.rank]),
        cell_(cell),
        victim_(self.rank == kVictim),
        random_(seed),
        point_(point) {}

  void run() {
    if (victim_) shared_.victim_pid = ::getpid();
    std::thread([] {}).join();  // the first brings ThreadSanitizer's own
    record_.before = resources();
    try {
      steps();
    } catch (const std::logic_error&) {
      // The victim's own: its communicator has been destroyed on the way here.
    }
    record_.told = true;
    if (comm_ != nullptr) end(std::exchange(comm_, nullptr));
    if (stream_ != nullptr) {
      EXPECT_EQ(tuttiStreamDestroy(stream_), tuttiSuccess);
    }
    record_.after = settled(record_.before);
    record_.done = true;
  }

 private:
  void steps() {
    if (cell_.on_stream) {
      ASSERT_EQ(tuttiStreamCreate(&stream_), tuttiSuccess);
    }
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.opTimeoutMs = cell_.by_timeout() ? kTimeoutMs : kPatientMs;
    config.initTimeoutMs = kPatientMs;
    ASSERT_EQ(tuttiCommInitRankConfig(&comm_, kRanks, id_of(self_), self_.rank, &config),
              tuttiSuccess)
        << tuttiGetLastError(nullptr);
    if (cell_.warm) {
      ASSERT_TRUE(call({.form = cell_.form, .root = cell_.root})) << record_.text;
    }
    record_.warm = true;  // a rank may be done before the others are
    await_all(&Record::warm, true);
    if (cell_.after()) {
      const bool worked = call(cell_.arguments());
      record_.before_failed = !worked;
      if (victim_) meet();
      if (!worked) return survive();
    }
    if (victim_ && !cell_.mismatches()) return meet_fault();
    if (cell_.inside()) await_victim();
    if (cell_.fault == Fault::kKillAndDestroy) return destroy_in_flight();
    const bool right = call(victim_ ? cell_.wrong_arguments() : cell_.arguments());
    record_.failed = !right;
    // Who was not told yet is told by the next call. Of calls that did not match one rank may even
    // get the next one's result, of which the others are told; not that of a third.
    bool told = !right;
    for (int i = 0; !told && i < (cell_.mismatches() ? 2 : 1); ++i)
      told = !call({.form = Form::kAllReduce});
    if (!cell_.harmless()) survive();
  }

  // After an error, or none that it should have seen: a new communicator, whose calls give what
  // they should.
  void survive() {
    if (record_.code != tuttiSuccess) ask_again();
    record_.told = true;  // a shrink ends the operations of who has not
    await_all(&Record::told, cell_.mismatches());
    int victim = kVictim;
    tuttiComm_t part = nullptr;
    const std::int64_t start = now_ns();
    const tuttiResult_t shrunk =
        tuttiCommShrink(comm_, &victim, cell_.stops() ? 1 : 0, &part, nullptr, TUTTI_SHRINK_ABORT);
    note("shrink", start);
    ASSERT_EQ(shrunk, tuttiSuccess) << tuttiGetLastError(comm_);
    int ranks = 0, rank = 0;
    EXPECT_EQ(tuttiCommCount(part, &ranks), tuttiSuccess);
    EXPECT_EQ(tuttiCommUserRank(part, &rank), tuttiSuccess);
    EXPECT_EQ(ranks, cell_.mismatches() ? kRanks : kRanks - 1);
    for (int root = 0; root < ranks; ++root) {
      CollectiveCall again({.form = cell_.form, .root = root}, rank, ranks);
      EXPECT_EQ(carry_out(again, part), tuttiSuccess) << "after the shrink: " << text();
      EXPECT_EQ(again.check(), "") << "after the shrink";
    }
    end(part);
  }
  void await_all(std::atomic<bool> Record::*reached, bool also_victim) const {
    for (int rank = 0; rank < kRanks; ++rank)
      while ((rank != kVictim || also_victim) && !(shared_.of[rank].*reached).load())
        ::sched_yield();
  }

  // The victim's, but for calls that do not match.
  void meet_fault() {
    switch (cell_.fault) {
      case Fault::kKillDuring:
      case Fault::kStopDuring:
        fault_ = [this] {
          shared_.hit = true;
          meet();
        };
        call(cell_.arguments());
        return meet();
      case Fault::kLeave: {
        const Communicator owner(std::exchange(comm_, nullptr));
        throw std::logic_error("an exception of the program");
      }
      case Fault::kAbort:
        return cell_.on_stream ? end_issued(tuttiCommAbort) : abort_in_call();
      case Fault::kDestroy:
        return cell_.on_stream ? end_issued(tuttiCommDestroy) : destroy_in_call();
      default:
        return meet();
    }
  }
  void meet() const { ::kill(::getpid(), cell_.stops() ? SIGSTOP : SIGKILL); }

  // The fault, if there is one, at a call of the system by the thread that carries out the call
  // that begins now.
  void hold_fault() {
    if (fault_ == nullptr) return;
    const unsigned n = point_ == Point::kCertain
                           ? 1
                           : 1 + static_cast<unsigned>(random_() % (1u << random_() % 7));
    shared_.entered = true;
    if (cell_.on_stream)
      hold_at_call_of("tutti-progress", n, std::exchange(fault_, nullptr));
    else
      hold_at_call(n, std::exchange(fault_, nullptr));
  }
  // The others call when the victim has, or where that is to be certain, when its fault has hit.
  void await_victim() const {
    const std::atomic<bool>& wanted = point_ == Point::kCertain ? shared_.hit : shared_.entered;
    while (!wanted.load() && !shared_.of[kVictim].done.load()) ::sched_yield();
  }

  // The call of another thread ends this one's.
  void abort_in_call() {
    std::atomic<bool> go{false};
    const tuttiComm_t comm = std::exchange(comm_, nullptr);
    std::jthread other([&] {
      while (!go.load()) ::sched_yield();
      EXPECT_EQ(tuttiCommAbort(comm), tuttiSuccess);
    });
    fault_ = [&] {
      shared_.hit = true;
      go = true;
    };
    CollectiveCall own(cell_.arguments(), self_.rank, kRanks);
    expect_ended(carry_out(own, comm));
    go = true;
  }
  // It is refused, and the call goes on.
  void destroy_in_call() {
    fault_ = [this] {
      std::jthread([this] { EXPECT_EQ(tuttiCommDestroy(comm_), tuttiInvalidUsage); }).join();
      shared_.hit = true;
    };
    const bool right = call(cell_.arguments());
    EXPECT_TRUE(right && call({.form = Form::kAllReduce})) << record_.text;
  }
  // Of a call on a stream: an abort ends it, a destroy comes after it.
  void end_issued(tuttiResult_t (*end_of)(tuttiComm_t)) {
    CollectiveCall own(cell_.arguments(), self_.rank, kRanks);
    ASSERT_EQ(own.issue(comm_, stream_), tuttiSuccess) << text();
    shared_.entered = shared_.hit = true;
    const std::int64_t start = now_ns();
    EXPECT_EQ(end_of(std::exchange(comm_, nullptr)), tuttiSuccess) << text();
    note("abort or destroy", start);
    const tuttiResult_t result = tuttiStreamSynchronize(stream_);
    if (end_of == tuttiCommAbort) return expect_ended(result);
    EXPECT_EQ(result, tuttiSuccess) << text();
    EXPECT_EQ(own.check(), "");
  }
  static void expect_ended(tuttiResult_t result) {
    EXPECT_TRUE(result == tuttiSuccess || result == tuttiRemoteError || result == tuttiInvalidUsage)
        << result << ": " << text();
  }

  // A survivor that does not wait for the end of its call.
  void destroy_in_flight() {
    CollectiveCall own(cell_.arguments(), self_.rank, kRanks);
    tuttiResult_t result = own.issue(comm_, stream_);
    if (result != tuttiSuccess) remember(result);  // the death was known before
    end(std::exchange(comm_, nullptr));
    if (result == tuttiSuccess) {
      result = tuttiStreamSynchronize(stream_);
      remember(result);
    }
    record_.failed = result != tuttiSuccess;
    if (!record_.failed) {
      EXPECT_EQ(own.check(), "");
    }
  }

  void end(tuttiComm_t comm) {
    const std::int64_t start = now_ns();
    EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess) << text();
    note("destroy", start);
  }

  // A communicator that has failed says so ever after.
  void ask_again() {
    tuttiResult_t state = tuttiSuccess;
    CollectiveCall again({.form = cell_.form, .root = cell_.root}, self_.rank, kRanks);
    record_.changed = tuttiCommGetAsyncError(comm_, &state) != tuttiSuccess ||
                      state != record_.code || carry_out(again, comm_) != record_.code;
  }

  // Makes the call and waits for its end. True if it succeeded, and then its result is right.
  bool call(const Arguments& arguments) {
    CollectiveCall own(arguments, self_.rank, kRanks);
    const tuttiResult_t result = carry_out(own, comm_);
    remember(result);
    // Of spoiled arguments the result is not defined.
    if (result == tuttiSuccess && !(victim_ && cell_.mismatches())) {
      EXPECT_EQ(own.check(), "");
    }
    return result == tuttiSuccess;
  }
  tuttiResult_t carry_out(CollectiveCall& call, tuttiComm_t comm) {
    std::int64_t start = now_ns();
    hold_fault();
    tuttiResult_t result = call.issue(comm, stream_);
    if (stream_ == nullptr) release_calls();
    note("issue", start);
    if (result != tuttiSuccess || stream_ == nullptr) return result;
    start = now_ns();
    result = tuttiStreamSynchronize(stream_);
    release_calls();
    note("synchronize", start);
    return result;
  }
  void note(const char* what, std::int64_t start_ns) {
    const std::int64_t took_ns = now_ns() - start_ns;
    if (took_ns <= record_.took_ns) return;
    record_.took_ns = took_ns;
    record_.slowest = what;  // the parent, a fork before, has the literal too
  }
  void remember(tuttiResult_t result) {
    if (result == tuttiSuccess || record_.code != tuttiSuccess) return;
    record_.code = result;
    std::strncpy(record_.text, text(), sizeof record_.text - 1);
  }
  static const char* text() { return tuttiGetLastError(nullptr); }

  const ForkedRank& self_;
  Shared& shared_;
  Record& record_;
  const Cell& cell_;
  const bool victim_;
  std::mt19937 random_;
  const Point point_;
  std::function<void()> fault_;  // that the next call meets inside
  tuttiComm_t comm_ = nullptr;
  tuttiStream_t stream_ = nullptr;
};

}  // namespace tutti::test
