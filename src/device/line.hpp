// SPDX-License-Identifier: Apache-2.0
// What the threads that share a line of packets do together (transports/packets.hpp): they vote,
// and they store. A block gives both for the eight threads of an LL128 line (position.hpp).
#pragma once

#include <cstdint>

#include "transports/packets.hpp"

namespace tutti::device {

// Do all threads that share a line say so? They ask together.
template <PacketFormat format, class Block>
[[nodiscard]] TUTTI_HD bool all_of_line(Block& block, bool mine) {
  if constexpr (line_shape(format).threads == 1)
    return mine;
  else
    return block.line_all(mine);
}

// Stores a line by `store`, which stores the calling thread's part of it.
template <PacketFormat format, class Block, class Store>
TUTTI_HD void store_line(Block& block, Store&& store) {
  if constexpr (line_shape(format).threads == 1)
    store();
  else
    block.line_store(store);
}

}  // namespace tutti::device
