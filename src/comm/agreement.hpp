// SPDX-License-Identifier: Apache-2.0
// What the ranks of a communicator agree on when it starts: settings, the table of choices, the
// order in which ranks stand. Rank 0 decides; the others check what it sent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/layout_exchange.hpp"
#include "comm/membership.hpp"
#include "plan/choice_table.hpp"
#include "plan/machines.hpp"
#include "plan/settings.hpp"
#include "transports/transport.hpp"

namespace tutti {

// Equal on all ranks but where it says so.
struct Agreement {
  Settings settings;
  RankFacts facts;                     // this rank's own
  ChoiceTable table;                   // rank 0's
  RankOrders orders;                   // the same
  std::string order_source;            // whence these come, for people; empty: by number, unasked
  std::vector<MeasuredPlan> measured;  // on rank 0 alone: of its profile
  // By rank; messages between unequal ones take a wire. Empty where none does.
  std::vector<std::int32_t> wire_hosts;
  // This rank's: who shares it, and the cores that the ranks there may use together.
  Machine machine{.ranks = 1, .cores = 1};

  // How ranks stand, in a line for people; empty where nothing was laid out.
  [[nodiscard]] std::string order_text() const;
};

// What this rank would have, and rank 0's table too: before the ranks have met, since only rank 0
// prices, and may do so while the others come. Errors: those of make_settings() and make_table().
[[nodiscard]] Result<Agreement> propose_agreement(const Membership& members);

// Collective over all ranks, which have opened their status pages; also the barrier after which
// every rank can be connected to. `access`: what this rank found; the least of all holds. Errors:
// kInvalidUsage where ranks were set differently, those of the exchange.
[[nodiscard]] Status agree(Agreement& agreement, const Membership& members,
                           const Transport& transport, const AccessView& access, Deadline deadline);

}  // namespace tutti
