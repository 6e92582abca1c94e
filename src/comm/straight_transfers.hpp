// SPDX-License-Identifier: Apache-2.0
// Sends and receives of a group in a straight line, as far as they need no waiting worth the name:
// first what is sent, then what has come or comes at once, each in the order of issue. The rest
// goes on in Transfers (transfers.hpp), which also finds whatever is wrong: nothing is taken that
// is not exactly what was expected. The thread that holds the communicator's call.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.hpp"
#include "comm/transfer.hpp"

namespace tutti {

class Communicator;

// What is left of the transfers: of each direction, those from an index on, but none with `over`.
struct TransfersLeft {
  std::size_t sends = 0, receives = 0;
  Rank over = kNoRank;

  [[nodiscard]] bool has(const Transfer& transfer, std::size_t index) const {
    return index >= (transfer.sends() ? sends : receives) && transfer.peer != over;
  }
  [[nodiscard]] bool none(std::size_t all) const { return sends == all && receives == all; }
};

// Allocates nothing. On a communicator that was ended, by whomever, it begins nothing.
[[nodiscard]] TransfersLeft run_straight(Communicator& communicator, std::span<const Transfer> all);

}  // namespace tutti
