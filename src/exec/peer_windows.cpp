// SPDX-License-Identifier: Apache-2.0
#include "exec/peer_windows.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/prefault.hpp"

namespace tutti {
namespace {

// Pages that the owner touches after so many uses of their piece are left to faults.
constexpr std::uint8_t kMostAsked = 4;

// Maps the pages of a piece that exist; a peer must not make any, nor say on which node they lie.
// Returns whether all exist. For reading, also where they are written: the kernel then maps 16
// pages of shared memory at a time, and writable, which takes a third of the time. What it refuses,
// or is too old for, faults do later.
bool map_existing(std::byte* begin, std::uint64_t bytes) {
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> exists((bytes + page_bytes - 1) / page_bytes);
  if (::mincore(begin, bytes, exists.data()) != 0) return true;
  const auto is_there = [](unsigned char page) { return (page & 1) != 0; };
  const auto end = exists.end();
  for (auto run = std::find_if(exists.begin(), end, is_there); run != end;) {
    const auto run_end = std::find_if_not(run, end, is_there);
    prefault(begin + static_cast<std::uint64_t>(run - exists.begin()) * page_bytes,
             static_cast<std::uint64_t>(run_end - run) * page_bytes, false);
    run = std::find_if(run_end, end, is_there);
  }
  return std::all_of(exists.begin(), end, is_there);
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
