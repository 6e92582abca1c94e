// SPDX-License-Identifier: Apache-2.0
// The block map: which chunk of the user's data a chunk of a schedule is.
//
// Chunks of a schedule belong to places: with chunks = ranks * m, chunk c is of the block at place
// c / m. In the user's data blocks lie by rank. If ranks are in another order, the two differ. A
// span cannot follow such a permutation (one message would become several operands), so spans stay
// as they are and the partition of the data looks the chunk up here. Both ends of a message use one
// map, so sizes agree; it is a bijection, so what is proved of places holds of ranks. Orders may
// differ by replica, because replicas run slices of their own.
//
// Plain data; on the host and in device code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/device.hpp"
#include "schedule/schedule.hpp"

namespace tutti {

// Maps the blocks of one replica; points into the shape from which it was made.
struct BlockMap {
  const Rank* ranks = nullptr;  // by place; null: rank k at place k
  std::uint32_t chunks_per_block = 1;

  // The rank whose block stands at `place`.
  [[nodiscard]] TUTTI_HD Rank rank_at(Rank place) const {
    return ranks == nullptr ? place : ranks[place];
  }
  // The rank whose block `chunk` is of.
  [[nodiscard]] TUTTI_HD Rank owner_of(std::uint32_t chunk) const {
    return rank_at(static_cast<Rank>(chunk / chunks_per_block));
  }
  // The chunk's number in the user's data.
  [[nodiscard]] TUTTI_HD std::uint32_t data_chunk(std::uint32_t chunk) const {
    if (ranks == nullptr) return chunk;
    return static_cast<std::uint32_t>(ranks[chunk / chunks_per_block]) * chunks_per_block +
           chunk % chunks_per_block;
  }
};

// Slice s of an operation runs on replica s mod shape.replicas.
[[nodiscard]] inline BlockMap block_map(const ScheduleShape& shape, std::uint32_t replica) {
  const auto ranks = static_cast<std::uint32_t>(shape.ranks);
  BlockMap map{.chunks_per_block = shape.chunks < ranks ? 1 : shape.chunks / ranks};
  if (!shape.block_ranks.empty())
    map.ranks = shape.block_ranks.data() + std::size_t{replica} * ranks;
  return map;
}

}  // namespace tutti
