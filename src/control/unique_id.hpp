// SPDX-License-Identifier: Apache-2.0
// What the 128 bytes of a unique id hold, and the check that they are undamaged.
//
// Two ways lead to a root: a Unix address for the ranks of its machine, a TCP address for the
// others. An id made by unique_id_at has the second alone, perhaps with a name instead of an IP.
// Pure; any thread. Knows nothing of sockets beyond the text of an address.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "control/control_plane.hpp"

namespace tutti::control {

// Raised with every change of the id, the handshake or the messages.
inline constexpr std::uint16_t kProtocolVersion = 3;

// The longest that fit into an id, without their schemes.
inline constexpr std::size_t kMaxIdLocalBytes = 36;
inline constexpr std::size_t kMaxIdNameBytes = 59;
// Shorter ones can be guessed.
inline constexpr std::size_t kLeastSecretBytes = 16;

struct IdContent {
  SessionKey key;
  std::string local{};         // "unix:...", where the root is on this machine; empty: no such way
  std::uint64_t locality = 0;  // host_identity("") where the root is; told with `local` only
  std::string tcp{};           // "tcp:...", may hold a name; empty: no such way
  // The root starts when rank 0 does, so others may come before it.
  [[nodiscard]] bool agreed() const { return local.empty(); }
};

[[nodiscard]] Result<UniqueId> encode_id(const IdContent& content);
// kInvalidArgument: damaged, or made by another version of the library.
[[nodiscard]] Result<IdContent> decode_id(const UniqueId& id);

}  // namespace tutti::control
