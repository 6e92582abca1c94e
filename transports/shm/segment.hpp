// SPDX-License-Identifier: Apache-2.0
// A segment: an inbox (transports/inbox.hpp) in shared memory. One rank creates it, its peers map
// it. Page 0 holds SegmentHeader: identity; `done` on a line of its own.
//
// Invariants:
// * All offsets follow from (ranks, arena_bytes), which both ends know from the job and never read
//   from the segment. The header is compared with them once, when mapping.
// * A segment's size cannot change after it was handed out (memfd seals), so that no access to a
//   mapped segment can fault, whatever a peer does. The fallback, an unnamed file, has no seals: it
//   is accepted only if its owner says that it is one, and its pages are reserved at once.
// * One process maps a segment once, however many of its threads are ranks.
// * Sparse: a page costs memory only once touched (fallback: at once). Nothing has a name that
//   outlives the processes.
// Any thread; nothing here waits. Knows no schedule, no connection state and no control plane.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "transports/inbox.hpp"

namespace tutti::shm {

struct SegmentHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::int32_t rank;
  std::int32_t ranks;
  std::uint64_t arena_bytes;
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> done;  // owner writes, peers read
};

// What backs a segment.
enum class Backing : std::uint8_t {
  kAuto,   // memfd, or an unnamed file where the kernel or a filter refuses memfd
  kMemfd,  // memfd or an error
  kFile,   // the fallback, for tests and for machines where it is wanted
};

// A mapped segment; unmaps on destruction. Shared by the ranks of one process.
class Segment {
 public:
  // Creates, sizes, seals, maps and initialises the segment of `rank`, and enters it in this
  // process's registry. Errors: kSystemError with what to do.
  [[nodiscard]] static Result<std::shared_ptr<Segment>> create(const InboxLayout& layout, Rank rank,
                                                               Backing backing);
  // Maps the segment of `rank` from an fd that the rank handed out. The fd may be closed
  // afterwards. Errors: kRemoteError if the fd is no segment of that rank and layout, or could be
  // sealed and is not; kInvalidUsage if the ranks disagree on the layout; kSystemError.
  [[nodiscard]] static Result<std::shared_ptr<Segment>> map(int fd, const InboxLayout& layout,
                                                            Rank rank);
  // The segment with this key made by this process, or null.
  [[nodiscard]] static std::shared_ptr<Segment> find(std::uint64_t key);

  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  [[nodiscard]] SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  // 0 <= source < layout.ranks: the caller has checked.
  [[nodiscard]] PairArea& pair(Rank source) const {
    return *reinterpret_cast<PairArea*>(base_ + InboxLayout::pair_offset_bytes(source));
  }
  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::byte* arena() const { return base_ + layout_.arena_offset_bytes(); }
  [[nodiscard]] const InboxLayout& layout() const { return layout_; }
  [[nodiscard]] std::uint64_t mapped_bytes() const { return layout_.total_bytes(); }

  // Of a created segment: unique in this process, never 0; what to hand out; whether it is a memfd.
  [[nodiscard]] std::uint64_t key() const { return key_; }
  [[nodiscard]] const std::shared_ptr<const UniqueFd>& fd() const { return fd_; }
  [[nodiscard]] bool sealed() const { return sealed_; }

 private:
  Segment(std::byte* base, const InboxLayout& layout) : base_(base), layout_(layout) {}
  [[nodiscard]] static Result<std::shared_ptr<Segment>> map_fd(int fd, const InboxLayout& layout);

  std::byte* base_;
  InboxLayout layout_;
  std::uint64_t key_ = 0;
  std::shared_ptr<const UniqueFd> fd_;
  bool sealed_ = false;
};

}  // namespace tutti::shm
