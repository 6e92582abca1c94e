// SPDX-License-Identifier: Apache-2.0
// The memory under the board: its layout, and the segment that a host's ranks share.
//
// Everything but the header is atomics in lines of their own: two ranks never write the same line,
// and the poison word, which every wait polls, shares its line with nothing. All zero is a valid
// empty board. Offsets come from the local number of ranks, never from the memory. The segment's
// descriptor stays open as long as it is mapped, by which others find it (board_view.hpp). Any
// change of the layout raises kBoardLayout. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/call_record.hpp"
#include "base/process_fd.hpp"
#include "base/result.hpp"
#include "board/board.hpp"
#include "board/flight_file.hpp"

namespace tutti::control {

inline constexpr std::uint64_t kBoardMagic = 0x4452424954545554;  // "TUTTIBRD" in memory
inline constexpr std::uint32_t kBoardLayout = 5;
inline constexpr std::size_t kBoardHostBytes = 64;

// For readers of other programs and other times. Written by the maker of the segment before anybody
// has mapped it, never again; the ranks themselves do not look at it. The two times are one moment:
// they turn the monotonic times of the records into dates.
struct alignas(kCacheLineBytes) BoardHeader {
  std::uint64_t magic;
  std::uint32_t layout;
  std::uint32_t blocks;      // ranks on this host
  std::uint32_t ranks;       // of the communicator
  std::uint32_t remembered;  // kRememberedOperations
  std::array<std::byte, kSessionIdBytes> session;
  std::uint64_t boot;  // boot_identity(), 0: unknown
  std::int64_t made_monotonic_ns;
  std::int64_t made_realtime_ns;
  std::array<char, kBoardHostBytes> host;  // for people; the rest is zeros
};
static_assert(sizeof(BoardHeader) == 2 * kCacheLineBytes);
[[nodiscard]] BoardHeader make_board_header(const BoardName& name, std::size_t blocks);

struct alignas(kCacheLineBytes) PoisonLine {
  std::atomic<std::uint64_t> word;     // 0: none; else see board.cpp
  std::atomic<std::uint32_t> revoked;  // 1: every operation ends, whatever the word says
};

// What changes while a rank works. The last three are written in slow waits and gatherings
// alone.
struct alignas(kCacheLineBytes) RankLine {
  std::atomic<std::uint32_t> state;
  std::atomic<std::int32_t> waits_for_plus_one;  // 0: nobody
  std::atomic<std::uint64_t> entered;
  std::atomic<std::uint64_t> left;
  std::atomic<std::int32_t> cpu_plus_one;  // 0: not known
  std::atomic<std::uint32_t> gathering;
  std::atomic<std::int64_t> left_ns;        // if before the last entering: right after that
  std::atomic<std::uint64_t> wait_place;    // pack_place()
  std::atomic<std::int64_t> wait_since_ns;  // of a gathering, too
};

// Identifies the rank; written once. Of its kernel's fault: what, expected, seen, and where.
struct alignas(kCacheLineBytes) RankIdentity {
  std::atomic<std::int32_t> pid;  // written last; 0: nobody has come
  std::atomic<std::int32_t> rank;
  std::atomic<std::uint64_t> start_ticks;
  std::atomic<std::uint64_t> pid_namespace;
  std::atomic<std::uint32_t> uid;
  std::array<std::atomic<std::uint64_t>, 4> fault;  // the first is written last; 0: none
};

// A signature of which the version tells the operation and whether it is whole: 2 * operation while
// it is written, 2 * operation + 1 when it is.
struct alignas(kCacheLineBytes) SignatureRecord {
  std::atomic<std::uint64_t> version;
  std::atomic<std::uint64_t> kinds;  // collective, type, op, root
  std::atomic<std::uint64_t> count;
  std::atomic<std::uint64_t> plan;
  std::atomic<std::int64_t> entered_ns;  // coarse_now_ns()
};

// The two signatures of the poison that this rank reported, or took over from another host.
struct alignas(kCacheLineBytes) PoisonDetail {
  std::array<std::atomic<std::uint64_t>, 8> words;
  std::atomic<std::int32_t> reporter_plus_one;  // of another host; 0: this rank
};

struct RankBlock {
  RankLine line;
  RankIdentity identity;
  CallRecord call;
  PoisonDetail detail;
  std::array<SignatureRecord, kRememberedOperations> ring;
};

static_assert(sizeof(PoisonLine) == kCacheLineBytes && sizeof(RankLine) == kCacheLineBytes &&
              sizeof(RankIdentity) == kCacheLineBytes);
static_assert(sizeof(SignatureRecord) == kCacheLineBytes &&
              sizeof(PoisonDetail) == 2 * kCacheLineBytes);
static_assert(sizeof(RankBlock) == (kRememberedOperations + 5) * kCacheLineBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

[[nodiscard]] constexpr std::size_t board_bytes(std::size_t ranks) {
  return sizeof(BoardHeader) + sizeof(PoisonLine) + ranks * sizeof(RankBlock);
}
static_assert(board_bytes(8) < 64 * 1024);

class BoardMemory {
 public:
  // Private memory, where a rank that is alone on its host gets no segment.
  [[nodiscard]] static std::shared_ptr<BoardMemory> alone();
  // Maps the segment that `fd` names and keeps a descriptor of its own. Errors: kRemoteError if it
  // is none of board_bytes(ranks), or could be sealed and is not, or is a file with a name that is
  // not this user's alone; kSystemError.
  [[nodiscard]] static Result<std::shared_ptr<BoardMemory>> map(int fd, std::size_t ranks);
  ~BoardMemory();
  BoardMemory(const BoardMemory&) = delete;
  BoardMemory& operator=(const BoardMemory&) = delete;

  [[nodiscard]] PoisonLine& poison() {
    return *reinterpret_cast<PoisonLine*>(base_ + sizeof(BoardHeader));
  }
  [[nodiscard]] RankBlock& block(std::size_t index) {
    return reinterpret_cast<RankBlock*>(base_ + sizeof(BoardHeader) + sizeof(PoisonLine))[index];
  }
  // -1: private memory, or a forked child's inheritance.
  [[nodiscard]] int fd() const { return fd_.of_this_process() ? fd_.get() : -1; }

 private:
  BoardMemory(std::byte* base, std::size_t bytes, bool mapped, ProcessFd fd)
      : base_(base), bytes_(bytes), mapped_(mapped), fd_(std::move(fd)) {}

  std::byte* base_;
  std::size_t bytes_;
  bool mapped_;
  ProcessFd fd_;
};

}  // namespace tutti::control
