// SPDX-License-Identifier: Apache-2.0
#include "exec/arena_uses.hpp"

namespace tutti {

ArenaUses::Use& ArenaUses::add(std::uint64_t bytes) {
  const std::uint64_t begin = next_begin(bytes);
  Use& use = uses_.emplace_back(
      Use{.begin = begin, .end = begin + bytes, .removed_until = removed_until_, .overlaps = {}});
  for (Use& other : uses_) {
    if (&other == &use || other.end <= use.begin || use.end <= other.begin) continue;
    use.overlaps.push_back(&other);
    other.overlaps.push_back(&use);
  }
  next_ = (use.end + kAligned - 1) / kAligned * kAligned;
  return use;
}

void ArenaUses::remove(const Use& use) {
  removed_until_ = std::max(removed_until_, use.last_operation);
  for (Use& other : uses_) {
    if (std::erase(other.overlaps, &use) > 0)
      other.removed_until = std::max(other.removed_until, use.last_operation);
  }
  uses_.remove_if([&](const Use& each) { return &each == &use; });
}

}  // namespace tutti
