// SPDX-License-Identifier: Apache-2.0
#include "model/price.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace tutti {
namespace {

// A number of each thing, along a path or of a rank.
struct Amounts {
  double messages = 0, steps = 0, operands = 0, remotes = 0, transfers = 0;
  double far_messages = 0, far_chunks = 0;  // of the messages; sent or received by one interface
  // These count ranks, and messages without those in far_messages.
  double far_transfers = 0, far_operands = 0;
  Amounts& add(double times, const Amounts& other) {
    messages += times * other.messages;
    steps += times * other.steps;
    operands += times * other.operands;
    remotes += times * other.remotes;
    transfers += times * other.transfers;
    far_messages += times * other.far_messages;
    far_chunks += times * other.far_chunks;
    far_transfers += times * other.far_transfers;
    far_operands += times * other.far_operands;
    return *this;
  }
  Amounts far(std::uint64_t messages_of, std::uint64_t chunks_of) && {
    far_messages = static_cast<double>(messages_of);
    far_chunks = static_cast<double>(chunks_of);
    return *this;
  }
  Amounts busy(std::uint64_t transfers_of, std::uint64_t operands_of) && {
    far_transfers = static_cast<double>(transfers_of);
    far_operands = static_cast<double>(operands_of);
    return *this;
  }
};

Amounts amounts(std::uint64_t messages, std::uint64_t steps, std::uint64_t operands,
                std::uint64_t remotes, std::uint64_t transfers) {
  return {static_cast<double>(messages), static_cast<double>(steps), static_cast<double>(operands),
          static_cast<double>(remotes), static_cast<double>(transfers)};
}

std::uint64_t beyond(std::uint64_t all, std::uint64_t some) { return all - std::min(all, some); }

// to += times * what.
void add(PlanCost& to, double times, const PlanCost& what) {
  to.time_ns += times * what.time_ns;
  to.messages_ns += times * what.messages_ns;
  to.switches_ns += times * what.switches_ns;
  to.steps_ns += times * what.steps_ns;
  to.bytes_ns += times * what.bytes_ns;
  to.wire_ns += times * what.wire_ns;
  to.remote_ns += times * what.remote_ns;
}

void add_up(PlanCost& cost) {
  cost.time_ns = cost.messages_ns + cost.switches_ns + cost.steps_ns + cost.bytes_ns +
                 cost.wire_ns + cost.remote_ns;
}

}  // namespace

// Knows what amounts cost.
class PlanPrices::Tariff {
 public:
  Tariff(const HostCosts& costs, const LinkCost& wire, double crowd)
      : costs_(costs), wire_(wire), crowd_(crowd) {}

  [[nodiscard]] Rate operator()(const Amounts& a) const {
    Rate rate;
    rate.fixed.messages_ns =
        (a.messages - a.far_messages) * costs_.alpha_ns + a.far_messages * wire_.alpha_ns;
    rate.fixed.switches_ns = a.messages * crowd_ * costs_.switch_ns;
    rate.fixed.steps_ns = a.steps * costs_.step_ns;
    rate.per_byte.bytes_ns =
        a.operands * costs_.beta_ns_per_byte + a.transfers * costs_.message_ns_per_byte;
    rate.fixed.remote_ns = a.remotes * costs_.remote_ns;
    rate.per_byte.remote_ns =
        a.remotes * (costs_.remote_ns_per_byte + crowd_ * costs_.remote_crowd_ns_per_byte);
    rate.fixed.wire_ns = a.far_transfers * wire_.overhead_ns;
    rate.per_byte.wire_ns =
        a.far_operands * wire_.overhead_ns_per_byte + a.far_chunks * wire_.beta_ns_per_byte;
    add_up(rate.fixed);
    add_up(rate.per_byte);
    return rate;
  }

 private:
  const HostCosts& costs_;
  const LinkCost& wire_;
  const double crowd_;
};

PlanPrices::PlanPrices(const ScheduleCounts& counts, const HostCosts& costs,
                       const PlanSetting& setting)
    : chunks_(counts.chunks),
      replicas_(setting.replicas),
      crowd_(std::max(0.0, static_cast<double>(counts.ranks) / setting.cores - 1.0)) {
  const Tariff tariff(costs, setting.wire, crowd_);
  // A rank's lanes share its thread: the last one has the others' steps before it.
  const std::uint64_t other_lanes = beyond(counts.max_steps, counts.lane_steps);
  path_ =
      tariff(amounts(counts.depth, counts.path_steps + other_lanes, counts.path_operands,
                     counts.path_remotes, counts.path_transfers)
                 .far(counts.far_depth, std::max(counts.path_far_chunks, counts.host_far_chunks))
                 .busy(beyond(counts.max_far_transfers, 2 * std::uint64_t{counts.far_depth}),
                       counts.max_far_operands));
  lane_ = tariff(amounts(counts.lane_depth, counts.lane_steps, counts.lane_operands,
                         counts.lane_remotes, counts.lane_transfers)
                     .far(counts.lane_far_depth, counts.lane_far_chunks));
  const Amounts own =
      amounts(0, counts.max_steps, counts.max_operands, counts.max_remotes, counts.max_transfers)
          .busy(counts.max_far_transfers, counts.max_far_operands);
  own_ = tariff(own);
  // An interface works beside the ranks, but for the gap between two messages.
  link_ = tariff(Amounts{}.far(0, counts.host_far_chunks).busy(1, 0));
  // A slot takes the next message once the receiver's step has read the one before.
  const std::uint64_t turns = counts.far_connection_messages, turned = counts.far_connection_chunks;
  const Amounts credits =
      amounts(turns, 2 * turns, 4 * turned, 0, 2 * turned).far(turns, turned).busy(0, 2 * turned);
  credits_ = tariff(Amounts{}.add(1.0 / setting.slots, credits));
  const Amounts all = amounts(0, counts.total_steps, counts.total_operands, counts.total_remotes,
                              counts.total_transfers)
                          .busy(counts.total_far_transfers, counts.total_far_operands);
  // Its core serves `crowd` others, too, each an equal share of them on average. If all ranks do
  // the same, this is all work by the number of cores.
  const double others = counts.ranks > 1 ? crowd_ / (counts.ranks - 1.0) : 0;
  core_ = tariff(Amounts{}.add(1 - others, own).add(others, all));
  // No rank waits for a line while another one works: the core itself does. (A far message is two
  // operands, its sender's and its receiver's.)
  if (crowd_ > 0) {
    const std::uint64_t near = beyond(counts.total_messages, counts.total_far_transfers / 2);
    core_.fixed.messages_ns = static_cast<double>(near) / setting.cores * costs.alpha_ns;
    add_up(core_.fixed);
  }
}

PlanCost PlanPrices::at(std::uint64_t bytes, std::uint32_t slices) const {
  const double piece = static_cast<double>(bytes) / chunks_ / slices;
  // Rounds are of one replica, which has lanes and connections of its own.
  const double further_slices = slices - 1.0,
               further_rounds = std::floor(further_slices / replicas_);
  struct Chain {
    const Rate& first;
    const Rate& further;
    double times;
  };
  const std::array chains{Chain{path_, own_, further_slices}, Chain{path_, link_, further_slices},
                          Chain{path_, lane_, further_rounds},
                          Chain{path_, credits_, further_rounds},
                          Chain{credits_, credits_, further_rounds}};
  const auto time = [&](const Rate& rate) {
    return rate.fixed.time_ns + piece * rate.per_byte.time_ns;
  };
  const auto cost_of = [&](const Rate& rate) {
    PlanCost cost = rate.fixed;
    add(cost, piece, rate.per_byte);
    return cost;
  };
  const Chain& longest = *std::ranges::max_element(
      chains, {}, [&](const Chain& c) { return time(c.first) + c.times * time(c.further); });
  PlanCost alone = cost_of(longest.first);
  add(alone, longest.times, cost_of(longest.further));
  PlanCost busiest;
  add(busiest, slices, cost_of(core_));
  if (crowd_ > 0) {
    // Each message on the path hands the core round once, to all of its ranks: `alone` has the
    // others.
    busiest.switches_ns = alone.switches_ns / crowd_ * (crowd_ + 1);
    busiest.time_ns += busiest.switches_ns;
  }
  return busiest.time_ns > alone.time_ns ? busiest : alone;
}

}  // namespace tutti
