// SPDX-License-Identifier: Apache-2.0
// How the shards of a unit's parameters become the whole unit: the seam for other ways (compressed,
// from a second copy inside the host).
#pragma once

#include <cstdint>
#include <memory>

#include "zero/links.hpp"

namespace tutti::zero {

class Gatherer {
 public:
  virtual ~Gatherer() = default;
  // Puts the gather on links.gather_stream. `shard` and `whole` are in the compute type; `shard`
  // may be the own part of `whole`. They stay until the work has ended. Collective.
  virtual void gather(const std::byte* shard, std::byte* whole, std::uint64_t padded_elements) = 0;
  // Payload that this rank sends for it.
  [[nodiscard]] virtual std::uint64_t bytes_sent(std::uint64_t padded_elements) const = 0;
};

// An all-gather. `links` outlives it, and has more than one rank to a replica.
[[nodiscard]] std::unique_ptr<Gatherer> make_plain_gatherer(Links& links, Number number);

// Of a Number in calls of the library.
[[nodiscard]] tuttiDataType_t data_type(Number number);

}  // namespace tutti::zero
