// SPDX-License-Identifier: Apache-2.0
// Costs: what a plan's steps and messages cost beside the network, for one implementation and one
// protocol: the numbers that calibration and fits replace.
#pragma once

#include <array>

#include "model/network.hpp"

namespace tutti {

// Holds the costs of a message on a path of one technology.
struct HopCosts {
  double alpha_ns = 0;  // per message, beside the route's latency: from commit to the peer's step
  // The share of a link's bandwidth that payload gets, without flags in the data and headers. (0,
  // 1].
  double efficiency = 1;
};

struct Costs {
  std::array<HopCosts, kHopCount> hops{};
  double step_ns = 0;              // worker's time per step
  double operand_ns_per_byte = 0;  // worker's time per byte of each operand read or written
  double remote_ns = 0;            // the same of an operand in a peer's memory, beside:
  double remote_ns_per_byte = 0;   //   per operand, per byte
  double switch_ns = 0;            // a worker given to another rank
  double start_ns = 0;             // once per operation: launch, entering
  // Link time per message and per link beyond bytes (gap: a NIC's message rate).
  double gap_ns = 0;
};

}  // namespace tutti
