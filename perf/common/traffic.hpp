// SPDX-License-Identifier: Apache-2.0
// The blocks of an all-to-all whose blocks differ, in nccl-tests' pattern: a block is the larger,
// the further its receiver stands behind its sender in the order of ranks. Every rank sends and
// receives equally much. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::perf {

// The bytes that rank `from` sends to rank `to` if each rank has about total_bytes to send: a
// multiple of 16. `spread` 0: equal blocks; 1: in proportion to the distance, none to the own rank.
[[nodiscard]] std::uint64_t block_bytes(int from, int to, int ranks, std::uint64_t total_bytes,
                                        double spread);

// One rank's blocks in elements, by peer, in buffers without gaps.
struct PeerBlocks {
  std::vector<std::size_t> send_counts, send_offsets, receive_counts, receive_offsets;
  std::vector<std::size_t> origins;  // where a received block lies in its sender's buffer

  [[nodiscard]] std::size_t sent() const { return send_offsets.back() + send_counts.back(); }
};
[[nodiscard]] PeerBlocks peer_blocks(int rank, int ranks, std::uint64_t total_bytes, double spread,
                                     std::size_t element_bytes);

}  // namespace tutti::perf
