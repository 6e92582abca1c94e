// SPDX-License-Identifier: Apache-2.0
// From a call to the plan that runs it: what is chosen or forced for calls of its kind, and the
// plans made so far, each with its connections.
//
// Plans are made in the order of the calls that need them first, which is equal on all ranks. One
// thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/call.hpp"
#include "comm/agreement.hpp"
#include "comm/fp32_partials.hpp"
#include "comm/membership.hpp"
#include "comm/window.hpp"
#include "exec/arena_uses.hpp"
#include "exec/host_executor.hpp"
#include "exec/peer_memory.hpp"
#include "plan/choice.hpp"
#include "plan/explain.hpp"
#include "transports/transport.hpp"

namespace tutti {

// A plan with its connections, kept for the next call of the same kind.
struct BoundPlan {
  Plan plan;
  std::unique_ptr<HostExecutor> executor;
  ArenaUses::Use* arena = nullptr;  // null: flagged cells
  std::uint64_t fence_passed = 0;   // all receivers are known to be done with this operation
  std::uint64_t last_call = 0;      // number of the last operation that ran it
};

class PlanCache {
 public:
  // All must outlive the object; `transport` is null where there is one rank.
  PlanCache(const Membership& members, const Agreement& agreement, Transport* transport,
            LentMemory& lent, const WindowTable& windows);
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  // Forces plans; where nothing is named, as the settings say. Errors: kNotSupported,
  // kInvalidArgument; nothing has changed then.
  [[nodiscard]] Status force(const ForcedSet& named);
  [[nodiscard]] Status force_configured();
  [[nodiscard]] const std::string& forced_text() const { return forced_text_; }
  [[nodiscard]] const Forced& forced(Collective collective) const {
    return choices_[static_cast<std::size_t>(collective)].forced;
  }

  // The plan of a call of at least one element; compiled, verified and connected at first use.
  // Errors that every rank finds alike, before anything was sent: kNotSupported, kInvalidArgument.
  // Others: those of the transport's connections.
  [[nodiscard]] Result<BoundPlan*> plan_for(const Call& call, bool in_windows);
  // Do this call's partial results travel as fp32? Its plan is then that of such a call.
  [[nodiscard]] bool carries_fp32(const Call& call) const {
    return settings_.fp32_partials && members_.ranks() > 1 && rounds_partials(call);
  }
  // The memory that the plan would write in an operation may hold unread messages of operations up
  // to the one that is returned: the fence.
  [[nodiscard]] std::uint64_t fence_of(const BoundPlan& plan, std::uint64_t operation) const {
    if (plan.arena != nullptr) return plan.arena->barrier();
    return cell_use_.cells == plan.plan.cells ? cell_use_.barrier : operation - 1;
  }
  // Gives the plan, whose fence that is, to the operation.
  void use(BoundPlan& plan, std::uint64_t operation, std::uint64_t fence) {
    plan.last_call = operation;
    if (plan.arena != nullptr)
      plan.arena->last_operation = operation;
    else
      cell_use_ = {plan.plan.cells, fence};
  }
  // A receiver that is not known to be done with the operations up to the fence; kNoRank: all are,
  // and the plan knows it. One look.
  [[nodiscard]] Rank behind_fence(BoundPlan& plan, std::uint64_t fence) const {
    if (fence <= plan.fence_passed) return kNoRank;
    return find_behind(plan, fence);
  }

  // Every way to run a call like this one, of which no buffer is looked at, with prices; what was
  // measured, on rank 0. Counts all schedules of the collective the first time.
  [[nodiscard]] Result<Explanation> explain(const Call& as_called, bool in_windows);

  // Of the last call; null: that was on a device, or none.
  [[nodiscard]] const Plan* last_plan() const {
    return last_plan_ == nullptr ? nullptr : &last_plan_->plan;
  }
  void forget_last_plan() { last_plan_ = nullptr; }
  // For calls that repeat (repeats.hpp): which plan the last one had, and what a call is told of
  // that took it again. A plan of an earlier generation may be gone, or be no longer the choice.
  [[nodiscard]] BoundPlan* last_bound() const { return last_plan_; }
  void note_last_plan(BoundPlan& plan) { last_plan_ = &plan; }
  [[nodiscard]] std::uint64_t generation() const { return generation_; }
  // Windows have come or gone, so that calls may have other plans.
  void note_windows() { ++generation_; }
  // Whether memory lies in windows is a question only where there are some.
  [[nodiscard]] bool without_windows() const { return windows_.empty(); }
  // What all plans have sent.
  [[nodiscard]] TrafficCounters traffic() const;
  // The ranks to which some plan has a connection.
  [[nodiscard]] std::set<Rank> connected() const;

 private:
  // The plans that are kept; those of the longest time without a call go. Each takes some KiB and,
  // of its own connections, nothing that it does not share.
  static constexpr std::size_t kMostPlans = 512;
  // By PeerAccess; an error where there is no plan.
  using Rows = std::array<Result<ChoiceRow>, ChoiceTable::kAccesses>;
  // What the next calls of a collective run.
  struct Choices {
    Forced forced;
    Rows rows;
    std::optional<Rows> in_order;                     // of ranks (kUserInOrder); once asked for
    std::optional<std::vector<Contender>> explained;  // all there are; once asked for
  };
  // What was chosen for a kind of call, direct-mapped: the table is asked once per kind and slot.
  struct Chosen {
    std::uint64_t bytes = 0;  // of the data; 0: empty, since no call of 0 bytes is planned
    std::uint64_t kind = 0;   // collective, root, in windows, with sizes, in the order of ranks
    BoundPlan* plan = nullptr;
  };
  // Remembers how the operations that last used flagged cells divided them (Plan::cells).
  struct CellUse {
    std::uint64_t cells = 0;
    std::uint64_t barrier = 0;  // operations up to here may have divided them otherwise
  };

  [[nodiscard]] Problem problem_of(const Call& call) const {
    return {
        .collective = scheduled_as(call.collective), .ranks = members_.ranks(), .root = call.root};
  }
  // By what a call's buffers may be read by peers.
  [[nodiscard]] PeerAccess access_of(const Call& call, bool in_windows) const;
  [[nodiscard]] Result<ChoiceRow> row_for(const RowQuestion& question) const;
  [[nodiscard]] Result<Rows> rows_in_order(const Problem& problem, const Forced& forced) const;
  [[nodiscard]] Result<Candidate> look_up(const Call& call, bool in_windows);
  [[nodiscard]] Result<BoundPlan*> bind(const Problem& problem, const Candidate& candidate,
                                        bool by_number);
  [[nodiscard]] Status connect(BoundPlan& bound);
  [[nodiscard]] Rank find_behind(BoundPlan& plan, std::uint64_t fence) const;
  void forget_oldest_plan();

  const Membership& members_;
  const Agreement& agreement_;
  const Settings& settings_;
  Transport* const transport_;
  LentMemory& lent_;
  const WindowTable& windows_;
  ForcedSet configured_;  // what the settings force
  std::string forced_text_;
  std::array<Choices, kCollectiveCount> choices_;
  std::map<std::uint64_t, std::unique_ptr<BoundPlan>> plans_;  // by plan id
  std::array<Chosen, 64> chosen_{};
  BoundPlan* last_plan_ = nullptr;
  std::uint64_t generation_ = 1;
  TrafficCounters forgotten_;  // of plans that are gone
  ArenaUses arena_uses_;
  CellUse cell_use_;
};

}  // namespace tutti
