// SPDX-License-Identifier: Apache-2.0
#include "model/price.hpp"

#include <algorithm>
#include <array>

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

// Holds the costs of amounts at one size of the operands.
class Tariff {
 public:
  Tariff(const ScheduleCounts& counts, const HostCosts& costs, const PriceInput& input)
      : costs_(costs),
        wire_(input.wire),
        piece_(static_cast<double>(input.bytes) / counts.chunks / input.slices),
        crowd_(std::max(0.0, static_cast<double>(counts.ranks) / input.cores - 1.0)) {}

  [[nodiscard]] PlanCost operator()(const Amounts& a) const {
    PlanCost cost;
    cost.messages_ns =
        (a.messages - a.far_messages) * costs_.alpha_ns + a.far_messages * wire_.alpha_ns;
    cost.switches_ns = a.messages * crowd_ * costs_.switch_ns;
    cost.steps_ns = a.steps * costs_.step_ns;
    cost.bytes_ns =
        piece_ * (a.operands * costs_.beta_ns_per_byte + a.transfers * costs_.message_ns_per_byte);
    cost.remote_ns =
        a.remotes * (costs_.remote_ns + piece_ * (costs_.remote_ns_per_byte +
                                                  crowd_ * costs_.remote_crowd_ns_per_byte));
    cost.wire_ns = a.far_transfers * wire_.overhead_ns +
                   piece_ * (a.far_operands * wire_.overhead_ns_per_byte +
                             a.far_chunks * wire_.beta_ns_per_byte);
    cost.time_ns = cost.messages_ns + cost.switches_ns + cost.steps_ns + cost.bytes_ns +
                   cost.wire_ns + cost.remote_ns;
    return cost;
  }
  // How many others share a rank's core, on average.
  [[nodiscard]] double crowd() const { return crowd_; }

 private:
  const HostCosts& costs_;
  const LinkCost wire_;
  const double piece_;
  const double crowd_;
};

}  // namespace

PlanCost price_plan(const ScheduleCounts& counts, const HostCosts& costs, const PriceInput& input) {
  const Tariff tariff(counts, costs, input);
  // A rank's lanes share its thread: the last one has the others' steps before it.
  const std::uint64_t other_lanes = beyond(counts.max_steps, counts.lane_steps);
  const Amounts path =
      amounts(counts.depth, counts.path_steps + other_lanes, counts.path_operands,
              counts.path_remotes, counts.path_transfers)
          .far(counts.far_depth, std::max(counts.path_far_chunks, counts.host_far_chunks))
          .busy(beyond(counts.max_far_transfers, 2 * std::uint64_t{counts.far_depth}),
                counts.max_far_operands);
  const Amounts lane = amounts(counts.lane_depth, counts.lane_steps, counts.lane_operands,
                               counts.lane_remotes, counts.lane_transfers)
                           .far(counts.lane_far_depth, counts.lane_far_chunks);
  const Amounts own =
      amounts(0, counts.max_steps, counts.max_operands, counts.max_remotes, counts.max_transfers)
          .busy(counts.max_far_transfers, counts.max_far_operands);
  // An interface works beside the ranks, but for the gap between two messages.
  const Amounts link = Amounts{}.far(0, counts.host_far_chunks).busy(1, 0);
  // A slot takes the next message once the receiver's step has read the one before.
  const std::uint64_t turns = counts.far_connection_messages, turned = counts.far_connection_chunks;
  Amounts credits =
      amounts(turns, 2 * turns, 4 * turned, 0, 2 * turned).far(turns, turned).busy(0, 2 * turned);
  credits = Amounts{}.add(1.0 / input.slots, credits);
  // Rounds are of one replica, which has lanes and connections of its own.
  const double further_slices = input.slices - 1.0,
               further_rounds = (input.slices - 1) / input.replicas;  // NOLINT: whole ones
  const std::array chains{
      Amounts(path).add(further_slices, own), Amounts(path).add(further_slices, link),
      Amounts(path).add(further_rounds, lane), Amounts(path).add(further_rounds, credits),
      Amounts(credits).add(further_rounds, credits)};
  const Amounts& chain = *std::ranges::max_element(
      chains, {}, [&](const Amounts& each) { return tariff(each).time_ns; });
  const PlanCost alone = tariff(chain);
  const Amounts all = amounts(0, counts.total_steps, counts.total_operands, counts.total_remotes,
                              counts.total_transfers)
                          .busy(counts.total_far_transfers, counts.total_far_operands);
  const double workers = std::min<double>(input.cores, counts.ranks);
  // Its core serves `crowd` others, too, each an equal share of them on average. If all ranks do
  // the same, this is all work by the number of cores.
  const double others = counts.ranks > 1 ? tariff.crowd() / (counts.ranks - 1.0) : 0;
  PlanCost busiest =
      tariff(Amounts{}.add(input.slices * (1 - others), own).add(input.slices * others, all));
  if (counts.ranks > input.cores) {
    busiest.switches_ns = chain.messages * counts.ranks / input.cores * costs.switch_ns;
    // No rank waits for a line while another one works: the core itself does. (A far message is two
    // operands, its sender's and its receiver's.)
    const auto near_messages =
        static_cast<double>(beyond(counts.total_messages, counts.total_far_transfers / 2));
    busiest.messages_ns = input.slices * near_messages / workers * costs.alpha_ns;
    busiest.time_ns += busiest.switches_ns + busiest.messages_ns;
  }
  return busiest.time_ns > alone.time_ns ? busiest : alone;
}

}  // namespace tutti
