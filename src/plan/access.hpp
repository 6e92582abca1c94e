// SPDX-License-Identifier: Apache-2.0
// By what the ranks of a job can reach each other's buffers: what decides whether plans that work
// in peers' memory may be chosen.
#pragma once

#include <cstdint>

#include "base/types.hpp"

namespace tutti {

// By what all pairs of a job can reach each other; the worst of them decides. kAttach reads only:
// what the kernel writes for a rank, nobody could hold back once its owner has given up.
enum class PeerAccess : std::uint8_t { kNone, kAttach, kMapped };
[[nodiscard]] const char* name_of(PeerAccess access);

// Says which access to its peers' memory a rank has, and what prevents a better one.
struct AccessView {
  PeerAccess access = PeerAccess::kNone;
  Rank refused = kNoRank;  // the first peer whose memory it may not read
  std::int32_t error = 0;  // why, as errno; 0: TUTTI_CMA=off
  Rank rank = kNoRank;     // whose view this is
};

}  // namespace tutti
