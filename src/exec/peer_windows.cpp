// SPDX-License-Identifier: Apache-2.0
#include "exec/peer_windows.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace tutti {
namespace {

// Pages that the owner touches after so many uses of their piece are left to faults.
constexpr std::uint8_t kMostAsked = 4;

// Maps the pages of a piece that exist; a peer must not make any, nor say on which node they lie.
// By a read of one page, for which the kernel maps those that exist among the 16 around it, and of
// shared memory also for writing: half of what MADV_POPULATE_READ takes. What it leaves out, faults
// do later. Returns whether all exist.
bool map_existing(const std::byte* begin, std::uint64_t bytes) {
  constexpr std::uintptr_t kAroundBytes = 64 << 10;  // fault_around_bytes, at addresses aligned so
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> exists((bytes + page_bytes - 1) / page_bytes);
  if (::mincore(const_cast<std::byte*>(begin), bytes, exists.data()) != 0) return true;
  bool all = true;
  std::uintptr_t mapped = 0;  // by its number
  for (std::size_t page = 0; page < exists.size(); ++page) {
    const bool is_there = (exists[page] & 1) != 0;
    const std::byte* const at = begin + page * page_bytes;
    const std::uintptr_t around = reinterpret_cast<std::uintptr_t>(at) / kAroundBytes;
    if (is_there && around != mapped) {
      static_cast<void>(*static_cast<const volatile std::byte*>(at));
      mapped = around;
    }
    all = all && is_there;
  }
  return all;
}

}  // namespace

void PeerWindow::prepare(std::uint64_t offset, std::uint64_t bytes) const {
  if (bytes == 0) return;
  const std::uint64_t lead = memory.lead_bytes(), all = lead + memory.bytes();
  if (asked.empty()) asked.resize((all + kPreparedBytes - 1) / kPreparedBytes);
  const std::uint64_t last = lead + offset + bytes - 1;
  for (std::uint64_t piece = (lead + offset) / kPreparedBytes; piece <= last / kPreparedBytes;
       ++piece) {
    std::uint8_t& times = asked[piece];
    if (times >= kMostAsked) continue;
    const std::uint64_t begin = piece * kPreparedBytes;
    const bool whole =
        map_existing(memory.data() - lead + begin, std::min(kPreparedBytes, all - begin));
    times = whole ? kMostAsked : static_cast<std::uint8_t>(times + 1);
  }
}

std::byte* find_in(const PeerWindows& windows, std::uint64_t address, std::uint64_t bytes,
                   Use use) {
  for (const PeerWindow& window : windows)
    if ((use == Use::kRead || window.writable) &&
        lies_in(address, bytes, window.address, window.memory.bytes())) {
      window.prepare(address - window.address, bytes);
      return window.memory.data() + (address - window.address);
    }
  return nullptr;
}

}  // namespace tutti
