// SPDX-License-Identifier: Apache-2.0
// A call record: where one rank's buffers lie during one operation, for peers that read them or
// store into them.
//
// Published before the rank's first message of the operation, so a peer that has received that
// message sees it. Withdrawn when the operation fails, before the caller gets its buffers back. A
// rank keeps one copy on the board, for other processes, who hand the addresses to the kernel and
// never follow them, and one in private memory, for ranks of its own process, who do. All zero is
// a valid empty record.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/types.hpp"

namespace tutti {

struct alignas(kCacheLineBytes) CallRecord {
  std::atomic<std::uint64_t> operation;  // 0: none
  std::atomic<std::uint64_t> input;      // these: where the data begins (Call::input_base)
  std::atomic<std::uint64_t> output;
  // Private copy only: peers that are just reading or storing.
  std::atomic<std::uint64_t> readers;
  // The other copy only: not 0 while this rank stores into memory of other processes. It tells of
  // whoever stores, not of the memory, so that the owner knows whose death ends the stores.
  std::atomic<std::uint64_t> storing;
};
static_assert(sizeof(CallRecord) == kCacheLineBytes);

}  // namespace tutti
