// The memory under the board: its layout, and the segment that a host's ranks share.
//
// Everything is atomics in lines of their own: two ranks never write the same line, and the poison
// word, which every wait polls, shares its line with nothing. All zero is a valid empty board.
// Offsets come from the local number of ranks, never from the memory. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "runtime/call_record.hpp"
#include "runtime/control/board.hpp"

namespace tutti::control {

struct alignas(kCacheLineBytes) PoisonLine {
  std::atomic<std::uint64_t> word;  // 0: none; else see board.cpp
};

struct alignas(kCacheLineBytes) RankLine {
  std::atomic<std::uint32_t> state;
  std::atomic<std::int32_t> waits_for_plus_one;  // 0: nobody
  std::atomic<std::uint64_t> entered;
  std::atomic<std::uint64_t> left;
  std::atomic<std::int32_t> cpu_plus_one;  // 0: not known
};

// A signature of which the version tells the operation and whether it is whole: 2 * operation while
// it is written, 2 * operation + 1 when it is.
struct alignas(kCacheLineBytes) SignatureRecord {
  std::atomic<std::uint64_t> version;
  std::atomic<std::uint64_t> kinds;  // collective, type, op, root
  std::atomic<std::uint64_t> count;
  std::atomic<std::uint64_t> plan;
};

// The two signatures of the poison that this rank reported.
struct alignas(kCacheLineBytes) PoisonDetail {
  std::array<std::atomic<std::uint64_t>, 8> words;
};

struct RankBlock {
  RankLine line;
  CallRecord call;
  PoisonDetail detail;
  std::array<SignatureRecord, kRememberedOperations> ring;
};

static_assert(sizeof(PoisonLine) == kCacheLineBytes && sizeof(RankLine) == kCacheLineBytes);
static_assert(sizeof(SignatureRecord) == kCacheLineBytes &&
              sizeof(PoisonDetail) == kCacheLineBytes);
static_assert(sizeof(RankBlock) == (kRememberedOperations + 3) * kCacheLineBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

[[nodiscard]] constexpr std::size_t board_bytes(std::size_t ranks) {
  return sizeof(PoisonLine) + ranks * sizeof(RankBlock);
}
static_assert(board_bytes(8) < 64 * 1024);

class BoardMemory {
 public:
  // Private memory, for a rank that is alone on its host.
  [[nodiscard]] static std::shared_ptr<BoardMemory> alone();
  // Maps the segment that `fd` names. Errors: kRemoteError if it is none of board_bytes(ranks), or
  // could be sealed and is not; kSystemError.
  [[nodiscard]] static Result<std::shared_ptr<BoardMemory>> map(int fd, std::size_t ranks);
  ~BoardMemory();
  BoardMemory(const BoardMemory&) = delete;
  BoardMemory& operator=(const BoardMemory&) = delete;

  [[nodiscard]] PoisonLine& poison() { return *reinterpret_cast<PoisonLine*>(base_); }
  [[nodiscard]] RankBlock& block(std::size_t index) {
    return reinterpret_cast<RankBlock*>(base_ + sizeof(PoisonLine))[index];
  }

 private:
  BoardMemory(std::byte* base, std::size_t bytes, bool mapped)
      : base_(base), bytes_(bytes), mapped_(mapped) {}

  std::byte* base_;
  std::size_t bytes_;
  bool mapped_;
};

// kMemfd: sealed, so that nobody can shrink it under its readers. The fallbacks are nameless files
// of mode 0600; they cannot be sealed, and their pages are reserved at once.
enum class SegmentKind { kAny, kMemfd, kTmpFile, kShmOpen };
// A zeroed segment without a name. Error: kSystemError.
[[nodiscard]] Result<UniqueFd> make_segment(std::size_t bytes,
                                            SegmentKind kind = SegmentKind::kAny);

}  // namespace tutti::control
