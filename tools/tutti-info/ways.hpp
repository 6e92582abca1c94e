// SPDX-License-Identifier: Apache-2.0
// By which way messages would travel from ranks of this machine, and why: what a communicator
// decides once it knows its ranks (its own choice is in tuttiCommInfo).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/result.hpp"
#include "facts.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace tutti::info {

inline constexpr std::uint64_t kNoLimit = UINT64_MAX;
struct RdmaHere {
  std::vector<VerbsPort> ports;
  std::uint64_t lockable_bytes = kNoLimit;  // 'ulimit -l'; of no concern to CAP_IPC_LOCK
};
// "verbs at rxe0:1, RoCE v2, GID 1 (...), if this rank can lock its memory ('ulimit -l': 64 KiB)":
// whether it can, only the kernel says, to who tries. Error: no port is active.
[[nodiscard]] Result<std::string> rdma_text(const RdmaHere& here, const Config& config);

[[nodiscard]] std::vector<Fact> way_facts(const Config& config);

}  // namespace tutti::info
