// SPDX-License-Identifier: Apache-2.0
#include "model/transfer_price.hpp"

#include <algorithm>
#include <cmath>

namespace tutti {
namespace {

// A number of messages and their bytes.
struct Load {
  double messages = 0, bytes = 0;
};

class Tariff {
 public:
  Tariff(const HostCosts& costs, const LinkCost& wire, bool far)
      : alpha_ns_(far ? std::max(0.0, wire.alpha_ns - 2 * wire.overhead_ns) : costs.alpha_ns),
        step_ns_(costs.step_ns + (far ? wire.overhead_ns : 0)),
        copy_ns_per_byte_(2 * costs.beta_ns_per_byte + costs.message_ns_per_byte +
                          (far ? wire.overhead_ns_per_byte : 0)),
        wire_ns_per_byte_(far ? wire.beta_ns_per_byte : 0) {}

  [[nodiscard]] double alpha_ns() const { return alpha_ns_; }
  [[nodiscard]] double end_ns(const Load& load) const {
    return load.messages * step_ns_ + load.bytes * copy_ns_per_byte_;
  }
  [[nodiscard]] double wire_ns(const Load& load) const { return load.bytes * wire_ns_per_byte_; }
  // From one end to the other, without the latency.
  [[nodiscard]] double through_ns(const Load& load) const {
    return 2 * end_ns(load) + wire_ns(load);
  }

 private:
  double alpha_ns_, step_ns_, copy_ns_per_byte_, wire_ns_per_byte_;
};

Load all_of(const TransferFlow& flow) {
  return {static_cast<double>(flow.messages), static_cast<double>(flow.bytes)};
}

double flow_ns(const TransferFlow& flow, const Tariff& tariff, std::uint32_t slots) {
  const Load first{1, static_cast<double>(flow.largest_bytes)};
  const Load rest{all_of(flow).messages - first.messages, all_of(flow).bytes - first.bytes};
  const double turns_ns = (rest.messages * tariff.alpha_ns() + tariff.through_ns(rest)) / slots;
  return tariff.through_ns(first) + std::max({tariff.end_ns(rest), tariff.wire_ns(rest), turns_ns});
}

}  // namespace

void TransferFlow::add(std::uint64_t call_bytes, std::uint64_t slot_bytes) {
  messages += std::max<std::uint64_t>(1, (call_bytes + slot_bytes - 1) / slot_bytes);
  bytes += call_bytes;
  largest_bytes = std::max(largest_bytes, std::min(call_bytes, slot_bytes));
}

double price_transfers(const HostCosts& costs, const TransferInput& input) {
  double core_ns = 2 * costs.beta_ns_per_byte * static_cast<double>(input.to_self_bytes);
  double longest_ns = 0, sent_ns = 0, received_ns = 0, latency_ns = 0, most_messages = 0;
  for (const TransferFlow& flow : input.flows) {
    const Tariff tariff(costs, input.wire, flow.far);
    const Load load = all_of(flow);
    core_ns += tariff.end_ns(load);
    longest_ns = std::max(longest_ns, flow_ns(flow, tariff, input.slots));
    (flow.sends ? sent_ns : received_ns) += tariff.wire_ns(load);
    latency_ns = std::max(latency_ns, tariff.alpha_ns());
    most_messages = std::max(most_messages, load.messages);
  }
  const double share = std::max(1.0, static_cast<double>(input.ranks) / input.cores);
  if (share > 1) latency_ns += std::ceil(most_messages / input.slots) * share * costs.switch_ns;
  const double calls_ns = static_cast<double>(input.calls) * kCallSteps * costs.step_ns;
  return share * calls_ns + latency_ns +
         std::max({share * core_ns, longest_ns, sent_ns, received_ns});
}

}  // namespace tutti
