// SPDX-License-Identifier: Apache-2.0
#include "exec/peer_windows.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace tutti {
namespace {

// Pages that the owner touches after so many uses of their piece are left to faults.
constexpr std::uint8_t kMostAsked = 4;

// Maps the pages of a piece that exist; a peer must not make any, nor say on which node they lie.
// By a read of one page, for which the kernel maps those that exist among the 16 around it, and of
// shared memory also for writing: half of what MADV_POPULATE_READ takes. What it leaves out, faults
// do later. Returns whether all exist.
bool map_existing(const std::byte* begin, std::uint64_t bytes) {
  constexpr std::uint64_t kLeastPageBytes = 4096;
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::array<unsigned char, kPreparedBytes / kLeastPageBytes> exists{};
  if (::mincore(const_cast<std::byte*>(begin), bytes, exists.data()) != 0) return true;
  bool all = true;
  std::uintptr_t mapped = 0;  // what a fault maps is aligned; by its number
  for (std::uint64_t at = 0; at < bytes; at += page_bytes) {
    const bool is_there = (exists[at / page_bytes] & 1) != 0;
    const std::uintptr_t around = reinterpret_cast<std::uintptr_t>(begin + at) / kPreparedBytes;
    if (is_there && around != mapped) {
      static_cast<void>(*static_cast<const volatile std::byte*>(begin + at));
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
