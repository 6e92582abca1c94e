// SPDX-License-Identifier: Apache-2.0
// The windows of another rank, as this process has mapped them: how the memory of peers in other
// processes of the host is reached by plain loads and stores. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "exec/allocation.hpp"

namespace tutti {

// A peer's part of a window, as this process sees it. One thread at a time.
struct PeerWindow {
  std::uint64_t id = 0;       // of this rank's part
  std::uint64_t address = 0;  // in the peer's process
  bool writable = false;
  Mapping memory;
  // How often the pages of a piece of kPreparedBytes have been asked for, until all were there.
  mutable std::vector<std::uint8_t> asked{};

  // Before memory is used for the first time: maps the pages of it that its owner has touched, many
  // by one fault.
  void prepare(std::uint64_t offset, std::uint64_t bytes) const;
};
// As much as one fault maps (fault_around_bytes): larger pieces would map what a rank that uses its
// share never reads.
inline constexpr std::uint64_t kPreparedBytes = 64 << 10;
using PeerWindows = std::vector<PeerWindow>;
// Does [address, address + bytes) lie in the `all` bytes from `begin` on? For numbers of a peer.
[[nodiscard]] inline bool lies_in(std::uint64_t address, std::uint64_t bytes, std::uint64_t begin,
                                  std::uint64_t all) {
  return address >= begin && address - begin <= all && bytes <= all - (address - begin);
}
enum class Use : std::uint8_t { kRead, kWrite };
// Returns the address at which [address, address + bytes) of the peer's process can be used so
// here; null: it is in no such window.
[[nodiscard]] std::byte* find_in(const PeerWindows& windows, std::uint64_t address,
                                 std::uint64_t bytes, Use use);

}  // namespace tutti
