// What a rank tells those of other hosts of itself when they ask, and what they told last.
//
// A board reaches its host. Who waits for a rank of another host, and waits long, asks that rank's
// service thread for its row: so what a rank does, and its host's poison, spread along the waits,
// without a message anywhere while nobody waits.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/control/board.hpp"

namespace tutti::control {

struct RankRow {
  RankState state = RankState::kAbsent;
  std::uint64_t entered = 0, left = 0;
  Rank waits_for = kNoRank;
  std::optional<OperationSignature> asked;  // of the operation that was asked for, if remembered
  std::optional<OperationSignature> last;   // of the last one entered
  std::optional<Poison> poison;
};

// Pure. What comes may be anything: nullopt where it is no row of a job of so many ranks.
[[nodiscard]] std::vector<std::byte> encode_row(const RankRow& row);
[[nodiscard]] std::optional<RankRow> decode_row(std::span<const std::byte> bytes, Rank ranks);

// The row of `rank` on `board`, which is of its host.
[[nodiscard]] RankRow row_of(const Board& board, Rank rank, std::uint64_t operation);

}  // namespace tutti::control
