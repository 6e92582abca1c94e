// SPDX-License-Identifier: Apache-2.0
#include "exec/peer_windows.hpp"

namespace tutti {

const std::byte* find_in(const PeerWindows& windows, std::uint64_t address, std::uint64_t bytes) {
  for (const PeerWindow& window : windows)
    if (lies_in(address, bytes, window.address, window.memory.bytes()))
      return window.memory.data() + (address - window.address);
  return nullptr;
}

}  // namespace tutti
