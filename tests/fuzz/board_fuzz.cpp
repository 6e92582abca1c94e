// SPDX-License-Identifier: Apache-2.0
// Any bytes as a board that ranks, dead or mad, or a forger of files have left behind: the decoder,
// and all that `tutti-info ranks` says of what it returns.
//
// The first byte tells two forms apart: even, the rest is the file; odd, the rest changes words of
// an honest board: number of ranks here, ranks elsewhere, then changes of 11 bytes (in which of the
// reader's three copies, which word, its value), so that short inputs reach every field. Its second
// bit asks for JSON in place of text.
#include <algorithm>
#include <cstring>

#include "base/wire.hpp"
#include "board/board_memory.hpp"
#include "board/board_view.hpp"
#include "board/board_words.hpp"
#include "tests/fuzz/target.hpp"
#include "tools/tutti-info/ranks.hpp"
#include "tools/tutti-info/stall.hpp"

namespace tutti::fuzz {
namespace {

using namespace control;

constexpr std::size_t kMostBlocks = 8;
constexpr info::Moment kNow{.monotonic_ns = 9'000'000'000, .realtime_ns = 1, .boot = 7};

void put(Bytes& board, std::size_t offset, const auto& value) {
  std::memcpy(board.data() + offset, &value, sizeof value);
}

std::size_t block_offset(std::size_t block) { return board_bytes(block); }

// Every rank here is in operation 3 and waits for nobody.
Bytes honest_board(std::size_t blocks, std::size_t elsewhere) {
  Bytes board(board_bytes(blocks));
  BoardHeader header = make_board_header(
      {.host = "node7", .ranks = static_cast<std::int32_t>(blocks + elsewhere)}, blocks);
  header.boot = kNow.boot;
  header.made_monotonic_ns = header.made_realtime_ns = 1'000'000'000;
  put(board, 0, header);
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t at = block_offset(block);
    const auto rank = static_cast<std::int32_t>(block);
    put(board, at + offsetof(RankBlock, line) + offsetof(RankLine, state), RankState::kAlive);
    put(board, at + offsetof(RankBlock, line) + offsetof(RankLine, entered), std::uint64_t{3});
    put(board, at + offsetof(RankBlock, line) + offsetof(RankLine, left), std::uint64_t{2});
    put(board, at + offsetof(RankBlock, identity) + offsetof(RankIdentity, pid), 100 + rank);
    put(board, at + offsetof(RankBlock, identity) + offsetof(RankIdentity, rank), rank);
    for (std::uint64_t number = 1; number <= 3; ++number) {
      const std::size_t record = at + offsetof(RankBlock, ring) + number * sizeof(SignatureRecord);
      put(board, record + offsetof(SignatureRecord, version), 2 * number + 1);
      put(board, record + offsetof(SignatureRecord, kinds), pack_kinds({}));
      put(board, record + offsetof(SignatureRecord, count), std::uint64_t{1024});
      put(board, record + offsetof(SignatureRecord, entered_ns), std::int64_t{2'000'000'000});
    }
  }
  return board;
}

struct Copies {
  Bytes first, middle, last;
};

Copies changed_board(Reader reader) {
  const std::size_t blocks = 1 + reader.number<std::uint8_t>() % kMostBlocks;
  const std::size_t elsewhere = reader.number<std::uint8_t>();
  const Bytes board = honest_board(blocks, elsewhere);
  Copies copies{board, board, board};
  for (;;) {
    const auto which = reader.number<std::uint8_t>();
    const auto word = reader.number<std::uint16_t>();
    const auto value = reader.number<std::uint64_t>();
    if (!reader.ok()) return copies;
    const std::size_t offset = word % (board.size() / sizeof value) * sizeof value;
    if ((which & 1) == 0) put(copies.first, offset, value);
    if ((which & 2) == 0) put(copies.middle, offset, value);
    if ((which & 4) == 0) put(copies.last, offset, value);
  }
}

void require_one_line(const std::string& text, const char* promise) {
  require(std::ranges::all_of(text, [](char c) { return c >= 0x20 && c <= 0x7e; }), promise);
}

void check(const RankView& rank, std::int32_t ranks) {
  require(rank.rank >= kNoRank && rank.rank < ranks, "a rank is one of the job or none");
  require(rank.history.size() <= kRememberedOperations, "a history has a bound");
  require(!rank.wait || (rank.wait->peer >= 0 && rank.wait->peer < ranks), "so is a peer");
  require(!rank.wait || rank.inside(), "who waits is inside");
}

// As jobs.cpp does, but for the look at processes, which are whatever their pids say.
void report(BoardView board, bool as_json) {
  info::Job job{"a file", std::move(board), {}};
  for (const RankView& rank : job.board.here)
    job.processes.push_back(static_cast<info::ProcessState>(static_cast<unsigned>(rank.pid) % 4));
  const auto culprits = info::find_culprits(job, kNow, 0);
  require(culprits.size() <= job.board.here.size() + 1, "culprits have a bound");
  for (const info::Culprit& culprit : culprits) require_one_line(culprit.line, "one line each");
  const info::Jobs jobs{.jobs = {std::move(job)}};
  if (as_json) {
    const std::string json = info::ranks_json(jobs, kNow, {.history = 0, .after_ns = 0});
    return require(json.ends_with("}\n"), "the JSON is whole");
  }
  std::string text = info::ranks_text(jobs, kNow, {.history = 2, .after_ns = 0});
  std::erase(text, '\n');
  require_one_line(text, "nothing for the terminal to obey");
}

}  // namespace

void run_one(std::span<const std::byte> input) {
  if (input.empty()) return;
  const bool raw = (input[0] & std::byte{1}) == std::byte{0};
  const bool as_json = (input[0] & std::byte{2}) != std::byte{0};
  input = input.subspan(1);
  Copies copies;
  if (!raw) copies = changed_board(Reader(input));
  auto view = raw ? decode_board({input, input, input})
                  : decode_board({copies.first, copies.middle, copies.last});
  if (!view) return require_one_line(view.error().message, "a refusal is one line");
  require(board_bytes(view->here.size()) <= std::max(input.size(), copies.middle.size()),
          "not more ranks than there is room for");
  for (const RankView& rank : view->here) check(rank, view->ranks);
  report(*std::move(view), as_json);
}

std::vector<Bytes> seeds() {
  const auto changes = [](std::uint8_t here, std::uint8_t elsewhere,
                          const std::vector<std::pair<std::size_t, std::uint64_t>>& words) {
    Writer writer;
    writer.number(std::uint8_t{1}).number(static_cast<std::uint8_t>(here - 1)).number(elsewhere);
    for (const auto& [offset, value] : words)
      writer.number(std::uint8_t{0}).number(static_cast<std::uint16_t>(offset / 8)).number(value);
    return writer.take();
  };
  // State and whom it waits for share a word.
  const auto waits = [](std::size_t rank, std::uint64_t peer) {
    return std::pair(block_offset(rank), std::uint64_t{1} | (peer + 1) << 32);
  };
  const std::size_t poison = sizeof(BoardHeader);
  const std::size_t detail = block_offset(1) + offsetof(RankBlock, detail);
  return {marked(0, honest_board(1, 1)), changes(3, 0, {waits(0, 1), waits(1, 2)}),
          changes(3, 0, {waits(0, 1), waits(1, 2), waits(2, 0)}), changes(2, 5, {waits(0, 6)}),
          changes(2, 0,
                  {{poison,
                    pack_poison({.culprit = 0, .reporter = 1, .kind = Poison::Kind::kMismatch})},
                   {detail, pack_kinds({})},
                   {detail + 8, 3},
                   {detail + 32, pack_kinds({.op = ReduceOp::kMax})},
                   {detail + 40, 3}})};
}

}  // namespace tutti::fuzz
