// SPDX-License-Identifier: Apache-2.0
#include "board/far_rows.hpp"

#include "base/wire.hpp"
#include "board/board_words.hpp"

namespace tutti::control {
namespace {

void write(Writer& writer, const std::optional<OperationSignature>& signature) {
  const OperationSignature written = signature.value_or(OperationSignature{});
  writer.number(std::uint8_t{signature.has_value()})
      .number(pack_kinds(written))
      .number(written.operation)
      .number(written.count)
      .number(written.plan);
}

// False: what stands there is no signature.
bool read(Reader& reader, Rank ranks, std::optional<OperationSignature>& signature) {
  const auto there = reader.number<std::uint8_t>();
  const auto kinds = reader.number<std::uint64_t>();
  OperationSignature result;
  result.operation = reader.number<std::uint64_t>();
  result.count = reader.number<std::uint64_t>();
  result.plan = reader.number<std::uint64_t>();
  if (there > 1 || !unpack_kinds(kinds, ranks, result)) return false;
  if (there == 1) signature = result;
  return true;
}

}  // namespace

std::vector<std::byte> encode_row(const RankRow& row) {
  Writer writer;
  writer.number(static_cast<std::uint32_t>(row.state))
      .number(row.entered)
      .number(row.left)
      .number(row.waits_for)
      .number(row.poison ? pack_poison(*row.poison) : std::uint64_t{0})
      .number(static_cast<std::uint8_t>(row.revoked));
  write(writer, row.asked);
  write(writer, row.last);
  const Poison poison = row.poison.value_or(Poison{});
  write(writer, poison.mine);
  write(writer, poison.theirs);
  return writer.take();
}

std::optional<RankRow> decode_row(std::span<const std::byte> bytes, Rank ranks) {
  Reader reader(bytes);
  RankRow row;
  const auto state = reader.number<std::uint32_t>();
  row.entered = reader.number<std::uint64_t>();
  row.left = reader.number<std::uint64_t>();
  row.waits_for = reader.number<Rank>();
  const auto poison = reader.number<std::uint64_t>();
  row.revoked = reader.number<std::uint8_t>() != 0;
  std::optional<OperationSignature> mine, theirs;
  const bool signatures = read(reader, ranks, row.asked) && read(reader, ranks, row.last) &&
                          read(reader, ranks, mine) && read(reader, ranks, theirs);
  if (!signatures || !reader.finished()) return std::nullopt;
  if (state > static_cast<std::uint32_t>(RankState::kFailed)) return std::nullopt;
  if (row.waits_for < kNoRank || row.waits_for >= ranks) return std::nullopt;
  row.state = static_cast<RankState>(state);
  if (poison == 0) return row;
  row.poison = unpack_poison(poison, ranks);
  row.poison->mine = mine.value_or(OperationSignature{});
  row.poison->theirs = theirs.value_or(OperationSignature{});
  return row;
}

RankRow row_of(const Board& board, Rank rank, std::uint64_t operation) {
  const RankState state = board.state(rank);  // first: who has left has entered all it will
  const std::uint64_t entered = board.last_entered(rank);
  return {.state = state,
          .entered = entered,
          .left = board.last_left(rank),
          .waits_for = board.waits_for(rank),
          .asked = board.signature(rank, operation),
          .last = board.signature(rank, entered),
          .poison = board.read_poison(),
          .revoked = board.revoked()};
}

}  // namespace tutti::control
