// SPDX-License-Identifier: Apache-2.0
// Does a connection lie within what a transport has room for?
#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "transports/connection.hpp"

namespace tutti {

// Messages beyond are no transport's: the largest that RDMA takes (IBA: 2^31 bytes), and what TCP
// states in 32 bits.
inline constexpr std::uint64_t kMaxSlotBytes = std::uint64_t{1} << 31;

struct SpecLimits {
  Rank ranks = 0;
  std::uint64_t arena_bytes = 0;
  std::uint32_t connections_per_pair = kMaxConnectionsPerPair;
  std::uint64_t cells_per_pair = kCellsPerPair;
};

// kInvalidArgument, saying what, where a spec lies outside. It may come from anywhere.
[[nodiscard]] Status check_spec(const ConnectionSpec& spec, const SpecLimits& limits);
// And is it one that `self` may open? What open_send and open_recv begin with.
[[nodiscard]] Status check_send(const ConnectionSpec& spec, const SpecLimits& limits, Rank self);
[[nodiscard]] Status check_recv(const ConnectionSpec& spec, const SpecLimits& limits, Rank self);

}  // namespace tutti
