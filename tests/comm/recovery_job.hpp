// SPDX-License-Identifier: Apache-2.0
// A job that loses ranks and goes on: processes on one or several hosts (network namespaces) work
// on a communicator, and on parts of it if wanted; a saboteur kills some; the others shrink until
// they work again.
//
// Each survivor checks that all survivors, and nobody else, are in its last communicator. With
// RECOVERY_TIMES set a job prints how long it took from the first kill until the last survivor had
// its first right result there.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "forked_job.hpp"
#include "job.hpp"
#include "meeting.hpp"
#include "tests/control/networks.hpp"

namespace tutti::test {

// How the survivors are busy when the first rank is killed.
enum class Busy { kIdle, kWaiting, kWorking };

struct Disaster {
  int ranks_per_host = 2;
  int hosts = 2;
  std::vector<int> victims{};
  Busy busy = Busy::kWorking;
  bool parts = false;                     // communicators of ranks of one parity are in use, too
  bool leaves_old = false;                // the old communicator is destroyed at once
  std::vector<std::int64_t> delays_ns{};  // before each kill; empty: none
  [[nodiscard]] int ranks() const { return hosts * ranks_per_host; }
  [[nodiscard]] bool dies(int rank) const { return std::ranges::count(victims, rank) > 0; }
  [[nodiscard]] int survivors() const { return ranks() - static_cast<int>(victims.size()); }
  [[nodiscard]] std::string text() const {
    std::string who;
    for (const int victim : victims) who += fmt::format("{}{}", who.empty() ? "" : ",", victim);
    constexpr std::array<const char*, 3> kBusy = {"idle", "waiting", "working"};
    return fmt::format("{} hosts x {} ranks, killed {} while {}{}{}", hosts, ranks_per_host, who,
                       kBusy.at(static_cast<std::size_t>(busy)), parts ? ", with parts" : "",
                       leaves_old ? ", old one left at once" : "");
  }
};

class RecoveryJob {
 public:
  RecoveryJob(const Disaster& disaster, const testing::Networks& networks)
      : disaster_(disaster),
        networks_(networks),
        shared_(new (::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared) {}
  RecoveryJob(const RecoveryJob&) = delete;
  RecoveryJob& operator=(const RecoveryJob&) = delete;
  ~RecoveryJob() { ::munmap(shared_, sizeof(Shared)); }

  void run() {
    ::setenv("TUTTI_IFNAME", "eth0", 1);
    ::setenv("TUTTI_IB_HCA", "=none", 1);  // TCP also where there is RDMA
    testing::ForkOptions options;
    options.timeout_ms = 40'000;
    options.after_fork = [this] { return make_id(); };
    const auto results = testing::run_forked(
        disaster_.ranks() + 1,
        [this](const testing::ForkedRank& self) {
          if (self.rank == disaster_.ranks()) return kill_victims();
          ASSERT_TRUE(networks_.enter(self.rank / disaster_.ranks_per_host));
          be_rank({self.rank, disaster_.ranks(), self.message});
        },
        options);
    testing::expect_all_passed(results, disaster_.victims);
    recovered_ns_ = shared_->right_ns - shared_->kill_ns;
    if (std::getenv("RECOVERY_TIMES") != nullptr)
      fmt::print("{}: works again after {:.1f} ms\n", disaster_.text(),
                 static_cast<double>(recovered_ns_) / 1e6);
  }
  [[nodiscard]] std::int64_t recovered_ns() const { return recovered_ns_; }

 private:
  static constexpr int kMostRanks = 16;
  struct Shared {
    std::array<std::atomic<int>, kMostRanks> pids{};
    std::atomic<int> ready{0}, recovered{0};
    std::atomic<std::int64_t> kill_ns{0}, right_ns{0};
  };

  std::string make_id() const {
    EXPECT_TRUE(networks_.enter(0));
    tuttiUniqueId id;
    EXPECT_EQ(tuttiGetUniqueId(&id), tuttiSuccess) << tuttiGetLastError(nullptr);
    EXPECT_TRUE(networks_.leave());
    return {id.internal, sizeof id.internal};
  }

  static bool wait_until(const std::atomic<int>& count, int least) {
    const Deadline deadline = Deadline::in_ms(30'000);
    while (count < least && !deadline.passed()) ::sched_yield();
    return count >= least;
  }

  void kill_victims() const {
    ASSERT_TRUE(wait_until(shared_->ready, disaster_.ranks()));
    for (std::size_t i = 0; i < disaster_.victims.size(); ++i) {
      const std::int64_t delay_ns = disaster_.delays_ns.empty() ? 0 : disaster_.delays_ns.at(i);
      for (const std::int64_t at_ns = now_ns() + delay_ns; now_ns() < at_ns;) ::sched_yield();
      if (i == 0) shared_->kill_ns = now_ns();
      const auto victim = static_cast<std::size_t>(disaster_.victims[i]);
      EXPECT_EQ(::kill(shared_->pids.at(victim), SIGKILL), 0);
    }
  }

  // The members of the communicator, a bit for each rank of the job; 0: the call failed.
  static std::uint32_t members_of(tuttiComm_t comm, int rank_in_job) {
    std::uint32_t bits = 1U << rank_in_job, all = 0;
    return tuttiAllReduce(&bits, &all, 1, tuttiUint32, tuttiSum, comm, nullptr) == tuttiSuccess
               ? all
               : 0;
  }

  [[nodiscard]] std::uint32_t survivors() const {
    std::uint32_t bits = 0;
    for (int rank = 0; rank < disaster_.ranks(); ++rank)
      if (!disaster_.dies(rank)) bits |= 1U << rank;
    return bits;
  }

  void be_rank(const testing::ForkedRank& self) {
    tuttiComm_t comm = join(self, 20'000), part = nullptr;
    ASSERT_NE(comm, nullptr);
    if (disaster_.parts) {
      ASSERT_EQ(tuttiCommSplit(comm, self.rank % 2, 0, &part, nullptr), tuttiSuccess)
          << tuttiGetLastError(comm);
    }
    ASSERT_EQ(check_sum(comm, self.rank, self.ranks, 1000, false), "");
    shared_->pids.at(static_cast<std::size_t>(self.rank)) = ::getpid();
    ++shared_->ready;
    be_busy(comm, part, self);
    recover(comm, part, self.rank);
  }

  // Until a call fails, or somebody is known to have died.
  void be_busy(tuttiComm_t comm, tuttiComm_t part, const testing::ForkedRank& self) const {
    std::vector<float> data(100'000, 1.0F);
    // Victims that do not call are what the others wait for.
    if (disaster_.busy == Busy::kWaiting && disaster_.dies(self.rank))
      for (;;) ::pause();
    tuttiResult_t result = tuttiSuccess;
    while (result == tuttiSuccess && disaster_.busy == Busy::kIdle)
      ASSERT_EQ(tuttiCommGetAsyncError(comm, &result), tuttiSuccess);
    while (result == tuttiSuccess) {
      if (part != nullptr)
        result =
            tuttiAllReduce(data.data(), data.data(), 1000, tuttiFloat, tuttiMax, part, nullptr);
      if (result == tuttiSuccess)
        result = tuttiAllReduce(data.data(), data.data(), data.size(), tuttiFloat, tuttiMax, comm,
                                nullptr);
    }
    EXPECT_EQ(result, tuttiRemoteError) << tuttiGetLastError(part) << tuttiGetLastError(comm);
  }

  // Every shrink succeeds, on all alike; one that was before the last death has a dead member.
  void recover(tuttiComm_t comm, tuttiComm_t part, int rank) {
    std::vector<tuttiComm_t> old;
    if (part != nullptr) {
      EXPECT_EQ(tuttiCommRevoke(part, 0), tuttiSuccess);
      old.push_back(part);
    }
    std::uint32_t members = 0;
    for (std::size_t shrinks = 0; members != survivors(); ++shrinks) {
      ASSERT_LE(shrinks, disaster_.victims.size()) << tuttiGetLastError(comm);
      tuttiComm_t rest = nullptr;
      ASSERT_EQ(tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, TUTTI_SHRINK_ABORT), tuttiSuccess)
          << tuttiGetLastError(comm);
      old.push_back(comm);
      if (disaster_.leaves_old) {
        EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
        old.pop_back();
      }
      comm = rest;
      do members = members_of(comm, rank);
      while (members != 0 && members != survivors());
    }
    for (std::int64_t seen = shared_->right_ns, at_ns = now_ns();
         seen < at_ns && !shared_->right_ns.compare_exchange_weak(seen, at_ns);) {
    }
    EXPECT_EQ(members_of(comm, rank), survivors());
    ++shared_->recovered;
    EXPECT_TRUE(wait_until(shared_->recovered, disaster_.survivors()));
    for (const tuttiComm_t one : old) EXPECT_EQ(tuttiCommDestroy(one), tuttiSuccess);
    EXPECT_EQ(tuttiCommDestroy(comm), tuttiSuccess);
  }

  const Disaster disaster_;
  const testing::Networks& networks_;
  Shared* const shared_;
  std::int64_t recovered_ns_ = 0;
};

}  // namespace tutti::test
