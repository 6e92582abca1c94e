// SPDX-License-Identifier: Apache-2.0
// What a user forces of plans, and the name of a whole candidate.
//
//   ENTRY[;ENTRY...]      ENTRY: [COLLECTIVE:]PLAN
//   PLAN: ALGORITHM[@PROTOCOL[:replicas=N][:slots=N][:slot=BYTES]]
//
// PROTOCOL: flagged, slots or direct; or a format of flagged messages among ranks on devices:
// cells, ll8, ll16 or ll128. On host memory, where flagged messages have one format, each means
// flagged.
//
// ring, circulant:radix=4, ring@flagged, two_shot@slots:replicas=2:slot=64K, auto@slots;
// all_reduce:ring;all_gather:pat. A plan without a collective is for all that have its algorithm,
// but for those with an entry of their own. The price decides everything that the text leaves out.
// Case does not matter. The same texts go into TUTTI_ALGO, --algo, tuttiConfig_t.algorithm and
// tuttiCommSetAlgorithm; plans stand in every explanation. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "algorithms/algorithm.hpp"
#include "plan/plan.hpp"

namespace tutti {

struct Forced {
  std::string name;                      // as given; "": nothing is forced
  const Algorithm* algorithm = nullptr;  // null: by price
  std::optional<Protocol> protocol;      // these: nothing or 0 for by price
  std::optional<PacketFormat> packets;   // of flagged messages on devices
  bool cells = false;                    // and none of those
  std::uint32_t replicas = 0;
  std::uint32_t slots = 0;
  std::uint64_t slot_bytes = 0;  // of a slot, its header included
  std::uint32_t min_slices = 0;
  bool for_all = false;  // it named no collective (ForcedSet::any)
};

// A collective as people write it: case and underscores do not matter (AllReduce).
[[nodiscard]] std::optional<Collective> find_collective(std::string_view name);

// One plan. "" and "auto" force nothing. kInvalidArgument says what there is.
[[nodiscard]] Result<Forced> parse_forced(std::string_view name);

// Entries for all collectives.
struct ForcedSet {
  std::string text;                              // as given
  Forced any;                                    // the plan that names no collective
  std::array<Forced, kCollectiveCount> of_each;  // where `named`
  std::array<bool, kCollectiveCount> named{};

  // Returns the constraint for a problem; nothing if the text for all collectives does not cover
  // it.
  [[nodiscard]] const Forced& of(const Problem& problem) const;
};
// Errors as of parse_forced; kInvalidArgument for a collective that stands twice, or two plans
// without one.
[[nodiscard]] Result<ForcedSet> parse_forced_set(std::string_view text);

// The name that forces this candidate, as options were wanted.
[[nodiscard]] std::string plan_name(const Algorithm& algorithm, const PlanOptions& options);

}  // namespace tutti
