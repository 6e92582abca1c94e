// What the 128 bytes of a unique id hold, and the check that they are undamaged.
// Pure; any thread. Knows nothing of sockets beyond the text of an address.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/control/control_plane.hpp"

namespace tutti::control {

// Raised with every change of the id, the handshake or the messages.
inline constexpr std::uint16_t kProtocolVersion = 1;

inline constexpr std::size_t kSecretBytes = 32;
using SessionId = std::array<std::byte, kSessionIdBytes>;
using Secret = std::array<std::byte, kSecretBytes>;

struct SessionKey {
  SessionId session{};  // public
  Secret secret{};      // never leaves this process but inside a unique id
};

struct IdContent {
  SessionKey key;
  std::string address;  // of the root
};

// Fresh random session and secret.
[[nodiscard]] SessionKey make_session_key();
[[nodiscard]] Result<UniqueId> encode_id(const IdContent& content);
// kInvalidArgument: damaged, or made by another version of the library.
[[nodiscard]] Result<IdContent> decode_id(const UniqueId& id);

}  // namespace tutti::control
