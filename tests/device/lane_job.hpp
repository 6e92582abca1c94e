// SPDX-License-Identifier: Apache-2.0
// All ranks of a job as blocks of one launch, run by threads.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "device/choice.hpp"
#include "device_job.hpp"
#include "emulation.hpp"

namespace tutti::test {

// A job whose ranks run as blocks of one launch.
class LaneJob {
 public:
  // `blocks`: of a rank, at most.
  LaneJob(const Algorithm& algorithm, std::int32_t ranks, device::Messages messages,
          PlanOptions options, std::uint32_t blocks = 1, std::uint64_t timeout_ns = 0)
      : fabric_(ranks, options.arena_bytes, PeerAccess::kMapped, options.cells_per_pair) {
    const Problem problem{.collective = Collective::kAllReduce, .ranks = ranks};
    const Result<ScheduleCounts> counts = count_schedule(algorithm, problem);
    EXPECT_TRUE(counts) << counts.error().message;
    candidate_.options = options;
    candidate_.messages = messages;
    candidate_.mutual = counts->mutual;
    candidate_.connection_messages = counts->connection_messages;
    for (Rank rank = 0; rank < ranks; ++rank) {
      auto plan = compile_plan(algorithm, problem, options, rank);
      EXPECT_TRUE(plan) << plan.error().message;
      ranks_.push_back(std::make_unique<DeviceRank>(fabric_, *std::move(plan), messages, blocks));
      words_.push_back(&ranks_.back()->words());
    }
    const bool one_lane = std::ranges::all_of(ranks_, [](const auto& rank) {
      return rank->plan().lanes.size() == rank->plan().options.replicas;
    });
    for (const auto& rank : ranks_) rank->place(words_, timeout_ns, one_lane);
  }

  // A call of every rank; of the same operation, but for what a test changes.
  template <class Fold>
  Costs run(Launch shape, std::vector<DeviceRank::Call> calls, std::size_t absent = ~0ul) {
    std::vector<Launched> launched;
    shape.blocks = 1;
    for (const auto& rank : ranks_) shape.blocks = std::max(shape.blocks, rank->blocks());
    ++operation_;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (calls[rank].signature == 0) calls[rank].signature = 77 * operation_;
      if (rank == absent) continue;
      device::Common common = ranks_[rank]->common_of(calls[rank]);
      common.credits = !candidate_.without_credits(common.cut.slices());
      launched.push_back({common, ranks_[rank]->task_of(calls[rank])});
    }
    return launch<Fold>(shape, launched);
  }
  [[nodiscard]] std::vector<std::uint64_t> faults() const {
    std::vector<std::uint64_t> words;
    for (const auto& rank : ranks_)
      words.push_back(static_cast<std::uint64_t>(rank->fault().fault) << 32);
    return words;
  }
  void abort() {
    for (device::RankWords* const words : words_) words->abort.store(1, std::memory_order_release);
  }
  [[nodiscard]] std::size_t ranks() const { return ranks_.size(); }
  [[nodiscard]] const DeviceRank& rank(std::size_t at) const { return *ranks_[at]; }

 private:
  device::Candidate candidate_;  // what decides whether a call needs credits
  LocalFabric fabric_;
  std::vector<std::unique_ptr<DeviceRank>> ranks_;
  std::vector<device::RankWords*> words_;
  std::uint64_t operation_ = 0;
};

}  // namespace tutti::test
