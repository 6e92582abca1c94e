// SPDX-License-Identifier: Apache-2.0
// The ways from one rank to the others: by which transport, whose memory is within reach, and what
// is owed to those far away before a rank leaves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>

#include "comm/membership.hpp"
#include "comm/window.hpp"
#include "exec/peer_memory.hpp"
#include "plan/access.hpp"
#include "transports/transport.hpp"

namespace tutti {

// Shared memory within a host and a wire between hosts, or what TUTTI_TRANSPORT forces. Collective.
// Errors: kNotSupported where no transport reaches a rank, those of the transports.
[[nodiscard]] Result<std::unique_ptr<Transport>> open_transport(const Membership& members,
                                                                Deadline deadline);

// Whose memory this rank can read, as it finds out alone; the job takes the least of all ranks.
[[nodiscard]] AccessView look_at_peers(const Membership& members);
// Error: kRemoteError, of a rank of this process that has destroyed its communicator.
[[nodiscard]] Result<PeerMemory> memory_of(Rank peer, const Membership& members,
                                           const WindowTable& windows);

// Parts from the others, as far as they are owed anything: waits until their hosts have taken what
// finished calls sent, then says goodbye; of a poisoned job tells those of other hosts that may
// wait for this rank why it leaves: the ones that are `connected`. `operation`: this rank's last.
// Throws nothing: it may be out of memory.
void part(Membership& members, Transport* transport,
          const std::function<std::set<Rank>()>& connected, std::uint64_t operation) noexcept;

}  // namespace tutti
