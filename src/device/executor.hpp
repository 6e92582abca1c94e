// SPDX-License-Identifier: Apache-2.0
// One rank's operations on its device: chooses and compiles plans, keeps them in device memory, and
// makes of each call a task for Job::enqueue. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "base/call.hpp"
#include "device/choice.hpp"
#include "device/encode.hpp"
#include "device/job.hpp"
#include "plan/explain.hpp"

namespace tutti::device {

class Executor {
 public:
  // Of a call; null: it is not used.
  struct Buffers {
    const void* input = nullptr;
    const void* output = nullptr;
  };
  // The job must be prepared. `timeout_ns` limits a kernel's wait for one event; 0: for ever.
  Executor(std::shared_ptr<Job> job, Rank rank, std::uint64_t timeout_ns, Prices prices = {});
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  // All work that it has enqueued has ended when the destructor returns.
  ~Executor() { job_->drain(rank_); }

  // A call of at least one element, in device memory. Allocates the first time a plan is used,
  // never afterwards. Errors: those of Choice::choose, compile_plan and of the device's memory.
  [[nodiscard]] Result<Issue> prepare(const Call& call, const Forced& forced);
  // Every way to run such a call, and the one that runs.
  [[nodiscard]] Result<Explanation> explain(const Call& call, const Forced& forced);
  // Returns the plan of the last call, or null.
  [[nodiscard]] const Plan* last_plan() const { return last_; }
  // Kinds of calls of which the choice is remembered.
  static constexpr std::size_t kMostChosen = 512;
  [[nodiscard]] std::size_t chosen() const { return chosen_.size(); }
  [[nodiscard]] Job& job() const { return *job_; }

 private:
  struct Bound {
    Plan plan;
    std::uint32_t blocks = 1;
    Candidate candidate;
    const BoundTask* task = nullptr;  // in device memory
  };
  struct Chosen {
    Bound* bound = nullptr;
    std::uint32_t slices = 1;  // at least
    std::uint64_t last_call = 0;
  };
  [[nodiscard]] Problem problem_of(const Call& call) const {
    return {.collective = call.collective, .ranks = job_->ranks(), .root = call.root};
  }
  [[nodiscard]] Result<const Chosen*> choose(const Forced& forced, const Problem& problem,
                                             std::uint64_t bytes);
  [[nodiscard]] Result<Bound*> bind(const Problem& problem, const Candidate& candidate);
  // A buffer that kernels of a device cannot use, and where it lies (Platform::out_of_reach).
  struct Unreachable {
    const char* buffer;
    std::string where;
  };
  // Nothing: they can use all of the call's.
  [[nodiscard]] std::optional<Unreachable> unreachable(int device, const Buffers& used) const;
  // kInvalidArgument for a buffer that the rank's device cannot use.
  [[nodiscard]] Status check_reach(const Call& call) const;
  // kInvalidArgument for a buffer that a peer's device cannot use, whose kernel does in this plan.
  [[nodiscard]] Status check_peers_reach(const Call& call, const Candidate& direct) const;
  [[nodiscard]] Status place(Bound& bound, const Program& program);

  std::shared_ptr<Job> job_;
  const Rank rank_;
  const std::uint64_t timeout_ns_;
  const std::string price_source_;
  Choice choice_;
  std::map<std::uint64_t, std::unique_ptr<Bound>> plans_;  // by plan id and messages
  // By what is forced, collective, root and bytes of the data.
  // At most kMostChosen; the one that was used longest ago goes. Plans stay: a graph may hold them.
  std::map<std::tuple<std::string, Collective, Rank, std::uint64_t>, Chosen> chosen_;
  std::uint64_t calls_ = 0;
  const Plan* last_ = nullptr;
};

}  // namespace tutti::device
