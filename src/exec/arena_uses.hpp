// SPDX-License-Identifier: Apache-2.0
// Which bytes of the inbox arenas each plan writes, and which operations used them last.
//
// A plan takes a range of its own while there is room, so that programs that alternate between
// plans wait for nobody; when the arena has been handed out, ranges begin at its front again and
// overlap older ones. An operation may write to its plan's range once every reader is done with the
// last operation of every overlapping plan: its barrier. Ranges follow from the order in which
// plans are made, which is equal on all ranks, so both ends of a connection know them without a
// word. Pure; one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <vector>

namespace tutti {

class ArenaUses {
 public:
  struct Use {
    std::uint64_t begin = 0, end = 0;
    std::uint64_t last_operation = 0;  // of this plan; its owner writes it
    std::uint64_t removed_until = 0;   // of plans that overlapped and are gone: their last one
    std::vector<const Use*> overlaps;

    [[nodiscard]] std::uint64_t barrier() const {
      std::uint64_t barrier = removed_until;
      for (const Use* const other : overlaps) barrier = std::max(barrier, other->last_operation);
      return barrier;
    }
  };

  explicit ArenaUses(std::uint64_t arena_bytes = 0) : arena_bytes_(arena_bytes) {}

  // Returns the begin of the next range of so many bytes, at most the arena's, would begin.
  [[nodiscard]] std::uint64_t next_begin(std::uint64_t bytes) const {
    return next_ + bytes <= arena_bytes_ ? next_ : 0;
  }
  // Takes it. The reference holds until it is removed.
  Use& add(std::uint64_t bytes);
  void remove(const Use& use);

 private:
  static constexpr std::uint64_t kAligned = 4096;

  std::uint64_t arena_bytes_;
  std::uint64_t next_ = 0;
  std::uint64_t removed_until_ = 0;  // of all plans that are gone
  std::list<Use> uses_;
};

}  // namespace tutti
