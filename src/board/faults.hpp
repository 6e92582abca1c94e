// SPDX-License-Identifier: Apache-2.0
// What went wrong, as text: every rank turns the same poison record into the same message, but who
// found out says also how.
// Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "board/board.hpp"

namespace tutti {

// "rank 2 (pid 4711 on node1)"; without a pid "rank 2 (on node1)"; for ranks out of range "rank 2
// (unknown)".
[[nodiscard]] std::string describe_rank(const std::vector<PeerInfo>& peers, Rank rank);

// The error that `poison` means for every call on the communicator. `cause`: of a connection that
// broke or did not come about, where it is known: at the reporter.
[[nodiscard]] Error poison_error(const Poison& poison, const std::vector<PeerInfo>& peers,
                                 std::string_view cause = {});
// The same where a rank's description comes from elsewhere.
[[nodiscard]] Error poison_error(const Poison& poison,
                                 const std::function<std::string(Rank)>& describe,
                                 std::string_view cause = {});

}  // namespace tutti
