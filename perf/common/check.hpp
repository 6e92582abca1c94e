// SPDX-License-Identifier: Apache-2.0
// Compares what a collective left with what it had to leave: results bit by bit, guards, the bytes
// around the result, and the send buffer. Every finding is counted and the first is described.
//
// One thread at a time per object. Tolerance is 0.
#pragma once

#include <string>

#include "common/buffer.hpp"
#include "common/data.hpp"

namespace tutti::perf {

// Holds the findings on one rank. `wrong` counts wrong elements, plus one for each damaged guard or
// changed input.
struct Findings {
  std::uint64_t wrong = 0;
  std::string first;  // "index 5: got 1 (0x..), want 2 (0x..)"; empty if wrong == 0

  void add(std::uint64_t count, const std::string& text) {
    if (wrong == 0) first = text;
    wrong += count;
  }
};

// `got` holds elements [first, first + count) of the result. Indices in the text start at 0 for
// element `first`.
void check_result(const DataSpec& spec, std::uint64_t first, std::uint64_t count, const void* got,
                  Findings& findings);
// The same of memory of whole elements, wherever it lies.
void check_result(const DataSpec& spec, std::uint64_t first, const MemoryView& got,
                  Findings& findings);

// Guard zones of a buffer; `name` is "send" or "receive".
void check_guards(std::string_view name, GuardedBuffer& buffer, Findings& findings);

// The memory of which `fingerprint` was taken, in bytes [begin, end), still holds what `rank` sent;
// its first element is element 0.
void check_send_unchanged(const DataSpec& spec, int rank, const Fingerprint& fingerprint,
                          std::size_t begin_bytes, std::size_t end_bytes, Findings& findings);

// The bytes around a region of the receive buffer, poisoned before an operation and looked at after
// it: they catch writes beyond the result that stay inside the buffer.
class RegionGuard {
 public:
  static constexpr std::size_t kBytes = 256;
  // Poisons up to kBytes on both sides of [begin, end) within `buffer`.
  RegionGuard(const MemoryView& buffer, std::size_t begin_bytes, std::size_t end_bytes);
  void check(Findings& findings) const;

 private:
  MemoryView before_, after_;
  std::size_t region_bytes_;
};

}  // namespace tutti::perf
