// SPDX-License-Identifier: Apache-2.0
// hypercube_perf: an all-gather of sends and receives, with the flags, table and JSON of
// nccl-tests. In stage k each rank exchanges the 2^k blocks that it has with rank ^ 2^k. The number
// of ranks must be a power of two.
#include <bit>

#include "common/main.hpp"

namespace {

using tutti::perf::Arguments;

// A rank alone has one stage too, which copies its block.
int stages(int ranks) {
  return ranks == 1 ? 1 : static_cast<int>(std::bit_width(static_cast<unsigned>(ranks))) - 1;
}

tuttiResult_t exchange(const Arguments& a) {
  int rank = 0, ranks = 0;
  if (const tuttiResult_t result = tuttiCommUserRank(a.comm, &rank); result != tuttiSuccess)
    return result;
  if (const tuttiResult_t result = tuttiCommCount(a.comm, &ranks); result != tuttiSuccess)
    return result;
  const std::size_t block_bytes = a.count * tutti::perf::element_bytes(a.type);
  const int distance = 1 << a.stage;
  const int first = rank & ~(distance - 1), peers_first = first ^ distance;
  auto* const blocks = static_cast<std::byte*>(a.receive);
  const auto block = [&](int number) {
    return blocks + static_cast<std::size_t>(number) * block_bytes;
  };
  const std::size_t count = a.count * static_cast<std::size_t>(distance);
  // What a call in the group finds wrong, its end tells too.
  if (const tuttiResult_t result = tuttiGroupStart(); result != tuttiSuccess) return result;
  if (a.stage == 0 && a.send != block(rank)) {
    static_cast<void>(tuttiSend(a.send, a.count, a.type, rank, a.comm, a.stream));
    static_cast<void>(tuttiRecv(block(rank), a.count, a.type, rank, a.comm, a.stream));
  }
  if (ranks > 1) {
    // The own block reaches the receive buffer in the first stage only.
    const void* const sent = a.stage == 0 ? a.send : block(first);
    static_cast<void>(tuttiSend(sent, count, a.type, rank ^ distance, a.comm, a.stream));
    static_cast<void>(
        tuttiRecv(block(peers_first), count, a.type, rank ^ distance, a.comm, a.stream));
  }
  return tuttiGroupEnd();
}

// Groups of processes (NCCL_TESTS_SPLIT) have sizes of their own, which the library checks.
std::string complete(tutti::perf::Options& options) {
  const auto ranks = static_cast<unsigned>(options.ranks());
  if (options.split || std::has_single_bit(ranks)) return {};
  return "a hypercube needs a power of two of ranks, not " + std::to_string(ranks);
}

}  // namespace

int main(int argc, char** argv) {
  tutti::CollectiveInfo row = tutti::info_of(tutti::Collective::kAllGather);
  row.name = "hypercube";
  row.bus = tutti::BusFactor::kOne;
  tutti::perf::Tool tool{row, exchange, stages};
  tool.complete = complete;
  return tutti::perf::run_tool(tool, argc, argv);
}
