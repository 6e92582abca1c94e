// SPDX-License-Identifier: Apache-2.0
// What names a job and lets its ranks prove that they belong to it. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>

#include "base/session_id.hpp"

namespace tutti::control {

inline constexpr std::size_t kSecretBytes = 32;
using Secret = std::array<std::byte, kSecretBytes>;

struct SessionKey {
  SessionId session{};  // public
  // Leaves its process inside a unique id, or to ranks of a job that the new one is made of.
  Secret secret{};
};

// Fresh random session and secret.
[[nodiscard]] SessionKey make_session_key();

}  // namespace tutti::control
