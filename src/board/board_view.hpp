// SPDX-License-Identifier: Apache-2.0
// A board as another program sees it: what every rank of a host does and did, read from outside,
// also when some or all of the ranks are dead.
//
// Reads through pread, never a mapping, so that no file can end the reader by shrinking. The board
// may be written meanwhile, by ranks that work or by a rank gone mad: every number is checked
// before it is used, and what makes no sense is said to make none. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "board/board.hpp"

namespace tutti::control {

struct OperationView {
  OperationSignature signature{};
  std::int64_t entered_ns = 0;  // monotonic
};

struct WaitView {
  Rank peer = kNoRank;
  WaitPlace place{};
};

struct RankView {
  Rank rank = kNoRank;
  std::int32_t pid = 0;  // in its own pid namespace
  std::uint32_t uid = 0;
  std::uint64_t start_ticks = 0;
  std::uint64_t pid_namespace = 0;
  RankState state = RankState::kAbsent;
  std::uint64_t entered = 0, left = 0;  // numbers of the last operation entered and left
  std::int64_t left_ns = 0;             // monotonic; 0: not known
  std::optional<WaitView> wait{};       // none: for nobody, or not for long
  std::optional<KernelFault> fault{};   // of its kernel
  Gathering gathering = Gathering::kNone;
  std::int64_t gathering_since_ns = 0;   // monotonic
  std::vector<OperationView> history{};  // the last operations, oldest first
  std::vector<std::string> nonsense{};   // "waits for rank 812": fields that no sane rank writes

  // In an operation, or given up in one.
  [[nodiscard]] bool inside() const { return entered != left; }
  // The one that it is in, or was in last; 0: none. On a device calls are ahead of what runs.
  [[nodiscard]] std::uint64_t current() const { return inside() ? left + 1 : left; }
  [[nodiscard]] const OperationView* operation(std::uint64_t number) const;
};

struct BoardView {
  std::string session{};  // hex
  std::string host{};
  std::int32_t ranks = 0;                                    // of the communicator
  std::uint64_t boot = 0;                                    // boot_identity() of that time
  std::int64_t made_monotonic_ns = 0, made_realtime_ns = 0;  // one moment
  std::optional<Poison> poison{};
  std::vector<RankView> here{};  // the ranks of this host that have come, ascending

  [[nodiscard]] const RankView* find(Rank rank) const;
};

// Three copies of a board, taken one after the other. A value that is equal in the first and in the
// last copy did not change while the middle one was taken.
struct BoardCopies {
  std::span<const std::byte> first, middle, last;
};
[[nodiscard]] Result<BoardView> decode_board(const BoardCopies& copies);

// `fd`: a board's segment or a flight recorder's file. `name` is for messages. Errors:
// kInvalidArgument (no board), kNotSupported (of another version), kRemoteError (damaged),
// kSystemError.
[[nodiscard]] Result<BoardView> read_board(int fd, std::string_view name);

}  // namespace tutti::control
