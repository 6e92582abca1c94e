// SPDX-License-Identifier: Apache-2.0
// Shrink: how the ranks of a communicator that live make a new one, also where some are dead and
// exchanges are broken. Every rank reports to the lowest that it believes to live, whose service
// thread answers once that has decided (shrink_decision.hpp says what, and why it is safe).
//
// One user thread at a time; the service thread answers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

#include "comm/shrink_decision.hpp"

namespace tutti {

class Shrink {
 public:
  // Begins to answer; `control` outlives the object.
  explicit Shrink(ControlPlane& control);

  struct Request {
    std::vector<Rank> excluded;  // sorted; not this rank
    // Its process has ended, or it has left the old job. Any thread.
    std::function<bool(Rank)> is_dead;
    std::function<bool()> cancelled;
    // Joins a new job; the token stops when one of its members dies meanwhile.
    std::function<Status(std::unique_ptr<ControlPlane>, const std::stop_token&)> join;
    std::function<void()> drop;        // what was joined: there will be another attempt
    std::int64_t timeout_ns = 0;       // for others to come
    std::int64_t join_timeout_ns = 0;  // and, after that, to join
  };
  // Collective over the ranks that are neither excluded nor dead; their order stays. On success all
  // of them that live have joined one new job, and `join` was last called for that; whoever dies
  // meanwhile is left out, or its death is found in the new job. Errors, on all of them: kTimeout
  // naming one that lives and did not come, kInvalidUsage where the lists differ, kRemoteError
  // where one of them failed.
  [[nodiscard]] Status run(const Request& request);
  // A rank has died: ends an attempt to join with it. Any thread.
  void note_death(Rank rank);

 private:
  // Shared with the service thread.
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    ShrinkDecision decision;  // guarded by mutex
  };
  struct Attempt;  // of this rank to take part

  [[nodiscard]] std::vector<Rank> living(const Request& request) const;
  [[nodiscard]] Status agree(const Request& request);
  [[nodiscard]] Status follow(const ShrinkAnswer& answer, Attempt& attempt, const Request& request);
  [[nodiscard]] Status join(const ShrinkAnswer& answer, Attempt& attempt, const Request& request);
  void prepare(Attempt& attempt);
  // The answer to a report, from whoever decides at the end.
  [[nodiscard]] Result<ShrinkAnswer> report_to_leader(Attempt& attempt, const Request& request);
  [[nodiscard]] ShrinkAnswer told_by(Rank leader, ShrinkAnswer answer) const;
  [[nodiscard]] Result<ShrinkAnswer> lead(const ShrinkReport& own, const Request& request,
                                          Deadline deadline);
  [[nodiscard]] Result<std::optional<ShrinkAnswer>> ask(Rank leader, ShrinkReport report,
                                                        Deadline deadline);
  [[nodiscard]] Result<std::optional<ShrinkAnswer>> ask_page(Rank leader,
                                                             const ShrinkReport& report,
                                                             Deadline deadline);

  ControlPlane& control_;
  const std::shared_ptr<Shared> shared_;
  std::uint64_t attempt_ = 0;  // the last one that this rank was in
  std::mutex join_mutex_;
  std::vector<Rank> joining_;                    // guarded by join_mutex_; sorted
  std::stop_source hopeless_{std::nostopstate};  // the same
};

}  // namespace tutti
