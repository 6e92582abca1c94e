// SPDX-License-Identifier: Apache-2.0
#include "common/traffic.hpp"

namespace tutti::perf {
namespace {

constexpr std::uint64_t kAlignment = 16;

}  // namespace

std::uint64_t block_bytes(int from, int to, int ranks, std::uint64_t total_bytes, double spread) {
  if (ranks == 1) return total_bytes / kAlignment * kAlignment;
  const auto total = static_cast<double>(total_bytes);
  const double distances = static_cast<double>(ranks) * (ranks - 1) / 2;
  const double weighted = (to - from + ranks) % ranks * total / distances;
  const double bytes = (1 - spread) * total / ranks + spread * weighted;
  return static_cast<std::uint64_t>(bytes) / kAlignment * kAlignment;
}

PeerBlocks peer_blocks(int rank, int ranks, std::uint64_t total_bytes, double spread,
                       std::size_t element_bytes) {
  const auto elements = [&](int from, int to) {
    return static_cast<std::size_t>(block_bytes(from, to, ranks, total_bytes, spread)) /
           element_bytes;
  };
  PeerBlocks blocks;
  std::size_t sent = 0, received = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    blocks.send_counts.push_back(elements(rank, peer));
    blocks.send_offsets.push_back(sent);
    sent += blocks.send_counts.back();
    blocks.receive_counts.push_back(elements(peer, rank));
    blocks.receive_offsets.push_back(received);
    received += blocks.receive_counts.back();
    std::size_t origin = 0;
    for (int before = 0; before < rank; ++before) origin += elements(peer, before);
    blocks.origins.push_back(origin);
  }
  return blocks;
}

}  // namespace tutti::perf
