// SPDX-License-Identifier: Apache-2.0
// Which plan runs an operation on devices, by price: the algorithms and shapes that there are, each
// priced from its schedule's counts as on the host (model/price.hpp), with a block for a core.
//
// The constants are those of the machine's profile, or priors; no size stands here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/task.hpp"
#include "model/device_costs.hpp"
#include "model/price.hpp"
#include "plan/forced.hpp"
#include "plan/plan.hpp"

namespace tutti::device {

struct Candidate {
  const Algorithm* algorithm = nullptr;
  PlanOptions options;
  Messages messages = Messages::kSlots;
  std::uint32_t slices = 1;
  bool one_lane = false;                  // has a replica, on each rank?
  bool mutual = false;                    // ScheduleCounts::mutual
  std::uint32_t connection_messages = 0;  // of one slice
  PlanCost cost;
  // Does a call in so many slices run without credits (Common::credits)? LL8 does not: its lines
  // are cleared, which must come before they are written again.
  [[nodiscard]] bool without_credits(std::uint64_t call_slices) const;
  // Replicas that have a slice.
  [[nodiscard]] std::uint32_t busy() const { return std::min(slices, options.replicas); }
  // Names the setting that would force it, as far as one exists, and how its messages move.
  [[nodiscard]] std::string name() const;
};

// What plans are priced with, the same on all ranks, and where it comes from, for people.
struct Prices {
  DeviceCosts costs = kPriorDeviceCosts;
  std::string source = std::string(kPriorDeviceSource);
};
[[nodiscard]] const HostCosts& costs_of(const DeviceCosts& costs, Messages messages);

// The algorithms of a job of ranks, with what their schedules count.
class Choice {
 public:
  struct Limits {
    std::int32_t ranks = 1;
    std::uint32_t blocks_each = 1;  // that a rank may have resident
    std::uint64_t arena_bytes = 0;
    bool whole_lines = true;                // Platform::whole_lines: LL16 and LL128 may run
    bool one_device = true;                 // of all ranks
    DeviceCosts costs = kPriorDeviceCosts;  // the same on all ranks
  };
  explicit Choice(const Limits& limits) : limits_(limits) {}

  // Every way to run a call with `bytes` of data that `forced` leaves, with its price.
  // kNotSupported where there is none, with a reason.
  [[nodiscard]] Result<std::vector<Candidate>> price(const Forced& forced, const Problem& problem,
                                                     std::uint64_t bytes);
  // The cheapest of them; the first of equals, so the same on all ranks. The errors of price().
  [[nodiscard]] Result<Candidate> choose(const Forced& forced, const Problem& problem,
                                         std::uint64_t bytes);

 private:
  struct Counted {
    const Algorithm* algorithm;
    Collective collective;
    ScheduleCounts counts;
  };
  [[nodiscard]] Result<const Counted*> count(const Algorithm& algorithm, const Problem& problem);

  const Limits limits_;
  std::vector<std::unique_ptr<Counted>> counted_;
};

}  // namespace tutti::device
