// SPDX-License-Identifier: Apache-2.0
// Choice: which algorithm, protocol, replication and slot size runs a call, by price.
//
// No size threshold stands here: the cheapest candidate wins. Rank 0 alone prices, and its table
// reaches all ranks (choice_table.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/price.hpp"
#include "plan/access.hpp"
#include "plan/forced.hpp"
#include "plan/measured.hpp"
#include "plan/plan.hpp"
#include "plan/settings.hpp"

namespace tutti {

class RankOrders;  // rank_orders.hpp

// What is tried for every algorithm: a protocol and its shape.
struct PlanShape {
  Protocol protocol;
  std::uint32_t replicas;
  std::uint32_t slots;
  std::uint64_t slot_bytes;
  enum class For : std::uint8_t {
    kAll,
    kPair,   // two ranks of a host, and messages of some KiB that a slot holds
    kHosts,  // ranks of several hosts
  };
  For whom = For::kAll;
};
[[nodiscard]] std::span<const PlanShape> plan_shapes();
inline constexpr std::size_t kMostPlanShapes = 15;

// Every family and every direct form, by the number under which tables know them.
[[nodiscard]] std::span<const Algorithm* const> listed_algorithms();
inline constexpr std::size_t kMaxAlgorithms = 16;

// One way to run an algorithm: what a plan is compiled from.
struct Candidate {
  const Algorithm* algorithm = nullptr;
  std::size_t shape = 0;  // of plan_shapes(), before the user's forced settings
  PlanOptions options;
  std::uint64_t message_bytes = 0;  // of one message
};
// Applies what is forced to a shape. kInvalidArgument where memory cannot be laid out for it.
[[nodiscard]] Result<Candidate> make_candidate(const Settings& settings, const Forced& forced,
                                               const Algorithm& algorithm, const Problem& problem,
                                               std::size_t shape);

// An algorithm with the counts of its schedule, and all the ways to run it that what is forced
// leaves.
struct Contender {
  const Algorithm* algorithm = nullptr;
  const Algorithm* named = nullptr;  // the same before it was given the job's groups
  Problem problem;                   // any root stands for all
  ScheduleCounts counts;
  std::vector<Candidate> candidates;
  std::string why_none;  // where there are none
};
// A hierarchy whose name says no groups takes those of the settings; others stay what they are.
[[nodiscard]] const Algorithm& with_groups(const Settings& settings, const Algorithm& algorithm,
                                           const Problem& problem);
// The forced algorithm alone, or every listed one that covers the problem; direct forms as well,
// whatever the access. kNotSupported if the forced one does not cover it. `hosts`: as
// count_schedule takes them, but by rank; `orders`: in which plans take the ranks, null: by number.
[[nodiscard]] Result<std::vector<Contender>> contenders(const Settings& settings,
                                                        const Forced& forced,
                                                        const Problem& problem,
                                                        std::span<const std::int32_t> hosts = {},
                                                        const RankOrders* orders = nullptr);

struct Priced {
  const Contender* contender = nullptr;
  const Candidate* candidate = nullptr;
  std::uint32_t slices = 1;
  PlanCost cost;
  std::optional<double> measured_us{};  // on this machine, if somebody did
};
// Is the first to be preferred? Of equal prices the one of shorter lanes: what the price does not
// know of delays them less.
[[nodiscard]] bool cheaper(const Priced& a, const Priced& b);
// Does a schedule read or write other ranks' memory? And write it?
[[nodiscard]] bool works_in_peers(const ScheduleCounts& counts);
[[nodiscard]] bool stores_into_peers(const ScheduleCounts& counts);
// What one contender's candidates cost at any size, for ranks that reach each other's memory by
// `access`, beside what was measured of them. Settings, contender and measurements outlive it.
class ContenderPrices {
 public:
  ContenderPrices(const Settings& settings, const Contender& contender, PeerAccess access,
                  const MeasuredByName& measured = {});
  // Appends the candidates as they stand.
  void append(std::uint64_t bytes, std::vector<Priced>& to) const;
  // For a person: why append() finds none.
  [[nodiscard]] std::string why_none(std::uint64_t bytes) const;

 private:
  // Why none is taken, whatever the size; empty: some may be.
  [[nodiscard]] std::string_view why_refused() const;

  const Settings& settings_;
  const Contender& contender_;
  const PeerAccess access_;
  // Of each candidate.
  std::vector<PlanPrices> prices_;
  std::vector<const MeasuredPlan*> measured_;  // null: it was not; empty: none was
};
// All candidates for a call with `bytes` of data by ranks that can read each other's memory by
// `access`, cheapest first, what is alike in the contenders' order; the contenders outlive them.
// Pure. kNotSupported where there is none, with the first reason.
[[nodiscard]] Result<std::vector<Priced>> price_candidates(const Settings& settings,
                                                           std::span<const Contender> contenders,
                                                           std::uint64_t bytes, PeerAccess access,
                                                           const MeasuredByName& measured = {});

}  // namespace tutti
