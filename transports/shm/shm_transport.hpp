// SPDX-License-Identifier: Apache-2.0
// Shared memory between the ranks of one host, as processes or as threads.
//
// Every rank owns one segment (segment.hpp) in which its peers write. The first rank of the host
// makes the file of all of them, and every other rank asks for it once, on its first connect; to
// send to a peer is then to map its segment, for which nobody is asked. Connections are shared: no
// byte is moved behind the back of the two ends, progress() has nothing to do, and no verb but the
// first connect() can block. The death of a peer is noticed elsewhere; here it only means that
// nothing arrives any more, and its memory stays mapped and readable.
#pragma once

#include <cstdint>
#include <memory>

#include "base/log.hpp"
#include "base/result.hpp"
#include "transports/shm/segment.hpp"
#include "transports/transport.hpp"

namespace tutti {

struct ShmOptions {
  std::uint64_t arena_bytes = std::uint64_t{2} << 20;  // of every rank; rounded up to pages
  shm::Backing backing = shm::Backing::kAuto;
  Log log{};  // told once, as a warning, when the fallback is taken
};

// A transport for the rank that `control` speaks for; `control` must outlive it. Allocates nothing
// yet: listen() does. With a single rank nothing is ever allocated. Errors: kInvalidArgument for an
// arena beyond kMaxArenaBytes.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_shm_transport(ControlChannel& control,
                                                                    const ShmOptions& options);

}  // namespace tutti
