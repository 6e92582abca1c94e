// SPDX-License-Identifier: Apache-2.0
// What names a job: random, and public (its secret is in control::SessionKey).
#pragma once

#include <array>
#include <cstddef>

namespace tutti {

inline constexpr std::size_t kSessionIdBytes = 16;
using SessionId = std::array<std::byte, kSessionIdBytes>;

}  // namespace tutti
