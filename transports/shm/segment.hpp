// SPDX-License-Identifier: Apache-2.0
// A segment: an inbox (transports/inbox.hpp) in shared memory. Those of a host's ranks lie one
// behind the other in one file, its "places": the first rank makes the file, the others get it from
// there, and each maps it once, as a whole: no rank asks another for its segment. Page 0 of the
// file holds FileHeader; page 0 of a place holds SegmentHeader, with `done` on a line of its own.
//
// Invariants:
// * All offsets follow from (ranks, arena_bytes, places), which all know from the job and never
//   read from the file. Its header is compared with them once, before a rank maps it.
// * A file's size cannot change after it was handed out (memfd seals), so that no access to a
//   mapped segment can fault, whatever a peer does. The fallback, an unnamed file, has no seals: it
//   is accepted only if its owner says that it is one, and its pages are reserved at once.
// * One process maps a file once, however many of its threads are ranks.
// * Sparse: a page costs memory only once touched (fallback: at once). Nothing has a name that
//   outlives the processes.
// Any thread; nothing here waits. Knows no schedule, no connection state and no control plane.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/fd.hpp"
#include "base/result.hpp"
#include "transports/inbox.hpp"

namespace tutti::shm {

struct FileHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::int32_t places;
  std::int32_t ranks;
  std::uint64_t arena_bytes;
};

struct SegmentHeader {
  alignas(kCacheLineBytes) std::atomic<std::uint64_t> done;  // owner writes, peers read
};

// What backs a file.
enum class Backing : std::uint8_t {
  kAuto,   // memfd, or an unnamed file where the kernel or a filter refuses memfd
  kMemfd,  // memfd or an error
  kFile,   // the fallback, for tests and for machines where it is wanted
};

// A segment of a mapped file, which it keeps mapped.
class Segment {
 public:
  Segment(std::shared_ptr<std::byte> base, const InboxLayout& layout)
      : base_(std::move(base)), layout_(layout) {}

  [[nodiscard]] SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base()); }
  // 0 <= source < layout.ranks: the caller has checked.
  [[nodiscard]] PairArea& pair(Rank source) const {
    return *reinterpret_cast<PairArea*>(base() + InboxLayout::pair_offset_bytes(source));
  }
  [[nodiscard]] std::byte* base() const { return base_.get(); }
  [[nodiscard]] std::byte* arena() const { return base() + layout_.arena_offset_bytes(); }
  [[nodiscard]] std::uint64_t bytes() const { return layout_.total_bytes(); }

 private:
  std::shared_ptr<std::byte> base_;
  InboxLayout layout_;
};

// The mapped file of a host's segments.
class SegmentFile {
 public:
  // Creates, sizes, seals, initialises and maps the file, for `rank`. Errors: kSystemError with
  // what to do.
  [[nodiscard]] static Result<SegmentFile> create(const InboxLayout& layout, std::int32_t places,
                                                  Rank rank, Backing backing);
  // Maps the file that `rank` handed out; the very mapping of another rank of this process, where
  // there is one. Errors: kRemoteError if it is no such file, or could be sealed and is not;
  // kInvalidUsage if the ranks disagree on the layout; kSystemError.
  [[nodiscard]] static Result<SegmentFile> map(UniqueFd fd, const InboxLayout& layout,
                                               std::int32_t places, Rank rank);

  [[nodiscard]] static std::uint64_t bytes_of(const InboxLayout& layout, std::int32_t places);
  // 0 <= place < places: the caller has checked.
  [[nodiscard]] Segment at(std::int32_t place) const;
  [[nodiscard]] int fd() const { return fd_->get(); }
  [[nodiscard]] const std::shared_ptr<const UniqueFd>& shared_fd() const { return fd_; }
  [[nodiscard]] bool sealed() const { return sealed_; }  // created as a memfd

 private:
  [[nodiscard]] static Result<SegmentFile> map_file(UniqueFd fd, bool sealed,
                                                    const InboxLayout& layout, std::int32_t places);
  SegmentFile(UniqueFd fd, bool sealed, const InboxLayout& layout, std::shared_ptr<std::byte> base)
      : fd_(std::make_shared<const UniqueFd>(std::move(fd))),
        sealed_(sealed),
        layout_(layout),
        base_(std::move(base)) {}

  std::shared_ptr<const UniqueFd> fd_;
  bool sealed_;
  InboxLayout layout_;
  std::shared_ptr<std::byte> base_;
};

}  // namespace tutti::shm
