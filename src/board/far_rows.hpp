// SPDX-License-Identifier: Apache-2.0
// What a rank tells those of other hosts of itself when they ask, and what they told last.
//
// A board reaches its host. A rank that waits long for a rank of another host asks that rank's
// service thread for its row: so what a rank does, and its host's poison, spread along the waits,
// without a message anywhere while nobody waits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "board/board.hpp"

namespace tutti::control {

// Pure. The bytes may be anything: returns nullopt if they are not a row of a job of so many ranks.
[[nodiscard]] std::vector<std::byte> encode_row(const RankRow& row);
[[nodiscard]] std::optional<RankRow> decode_row(std::span<const std::byte> bytes, Rank ranks);

// The row of `rank` on `board`, which is of its host.
[[nodiscard]] RankRow row_of(const Board& board, Rank rank, std::uint64_t operation);

}  // namespace tutti::control
