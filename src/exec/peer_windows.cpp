// SPDX-License-Identifier: Apache-2.0
#include "exec/peer_windows.hpp"

namespace tutti {

std::byte* find_in(const PeerWindows& windows, std::uint64_t address, std::uint64_t bytes,
                   Use use) {
  for (const PeerWindow& window : windows)
    if ((use == Use::kRead || window.writable) &&
        lies_in(address, bytes, window.address, window.memory.bytes()))
      return window.memory.data() + (address - window.address);
  return nullptr;
}

}  // namespace tutti
