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
#include <span>
#include <string>
#include <vector>

#include "control/control_plane.hpp"

namespace tutti::control {

// Raised with every change of the id, the handshake or the messages.
inline constexpr std::uint16_t kProtocolVersion = 4;

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
// Of a job's ids, one for each root. kInvalidArgument: also of no id, of more than `ranks`, and of
// one that is there twice.
[[nodiscard]] Result<std::vector<IdContent>> decode_ids(std::span<const UniqueId> ids,
                                                        std::int32_t ranks);
// What check_ids() finds can be said before any id is read.
[[nodiscard]] Status check_ids(std::span<const UniqueId> ids, std::int32_t ranks);
// The key of the job whose roots these are: the id's own, or one made of all of them, which nobody
// knows who has less than the whole list.
[[nodiscard]] SessionKey job_key(std::span<const IdContent> ids);

}  // namespace tutti::control
