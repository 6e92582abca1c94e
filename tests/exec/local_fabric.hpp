// SPDX-License-Identifier: Apache-2.0
// Connections in plain memory of one process: real connection words, cells and arenas, without a
// transport. Lets the executor run all ranks of a job in one thread, in any interleaving. Peers'
// buffers are read by plain loads, or by cross-memory attach to this very process.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/host.hpp"
#include "exec/host_executor.hpp"
#include "plan/access.hpp"

namespace tutti::test {

class LocalFabric {
 public:
  LocalFabric(std::int32_t ranks, std::uint64_t arena_bytes,
              PeerAccess access = PeerAccess::kMapped, std::size_t cells_per_pair = kCellsPerPair)
      : ranks_(ranks),
        access_(access),
        cells_per_pair_(cells_per_pair),
        pairs_(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks)) {
    for (std::int32_t r = 0; r < ranks; ++r) {
      arenas_.push_back(std::make_unique<Line[]>(arena_bytes / sizeof(Line) + 1));
      shared_.push_back(std::make_unique<CallRecord>());
      lent_.push_back(std::make_unique<LentMemory>(SessionId{}, r, shared_.back().get()));
    }
  }

  Connection open(const ConnectionSpec& spec, bool sender) {
    auto& pair = pairs_[static_cast<std::size_t>(spec.source * ranks_ + spec.destination)];
    if (!pair) pair = std::make_unique<Pair>(cells_per_pair_);
    Connection connection;
    connection.protocol = spec.protocol;
    connection.slots = spec.slots;
    connection.cells_per_slot = spec.cells_per_slot;
    connection.slot_bytes = spec.slot_bytes;
    connection.cells = &pair->cells[spec.first_cell];
    connection.arena =
        reinterpret_cast<std::byte*>(arenas_[static_cast<std::size_t>(spec.destination)].get()) +
        spec.arena_offset_bytes;
    if (spec.short_slots > 0) {
      connection.short_cells = &pair->short_cells[spec.index * spec.short_slots];
      connection.other_slots = spec.short_slots;
    }
    connection.words = &pair->words[spec.index];
    connection.state = &states_[{spec.source, spec.destination, spec.index, sender}];
    return connection;
  }

  // A rank's executor of its plan, or all ranks'.
  std::unique_ptr<HostExecutor> bind(const Plan& plan) {
    std::vector<Connection> sends, recvs;
    for (const ConnectionSpec& spec : plan.sends) sends.push_back(open(spec, true));
    for (const ConnectionSpec& spec : plan.recvs) recvs.push_back(open(spec, false));
    DirectAccess direct{.own = lent_[static_cast<std::size_t>(plan.rank)].get(), .peers = {}};
    for (const Rank peer : plan.remotes) direct.peers.push_back(memory_of(peer));
    return std::make_unique<HostExecutor>(plan, std::move(sends), std::move(recvs),
                                          std::move(direct));
  }

  std::vector<std::unique_ptr<HostExecutor>> bind_all(const std::vector<Plan>& plans) {
    std::vector<std::unique_ptr<HostExecutor>> executors;
    for (const Plan& plan : plans) executors.push_back(bind(plan));
    return executors;
  }

  PeerMemory memory_of(Rank peer) {
    const auto r = static_cast<std::size_t>(peer);
    if (access_ == PeerAccess::kMapped) return PeerMemory(lent_[r]->local());
    return PeerMemory({.rank = peer,
                       .pid = ::getpid(),
                       .process_token = process_token(),
                       .token_address = process_token_address(),
                       .host = {}},
                      shared_[r].get());
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  struct Pair {
    explicit Pair(std::size_t count) : cells(count) {}
    ConnectionWords words[kMaxConnectionsPerPair] = {};
    std::vector<Cell> cells;
    Cell short_cells[kShortCellsPerPair] = {};
  };
  std::int32_t ranks_;
  PeerAccess access_;
  std::size_t cells_per_pair_;
  std::vector<std::unique_ptr<Pair>> pairs_;
  std::vector<std::unique_ptr<Line[]>> arenas_;
  std::vector<std::unique_ptr<CallRecord>> shared_;
  std::vector<std::unique_ptr<LentMemory>> lent_;
  std::map<std::tuple<Rank, Rank, std::uint32_t, bool>, ConnectionState> states_;
};

// All ranks' plans of an all-reduce.
inline std::vector<Plan> all_reduce_plans(std::string_view algorithm, std::int32_t ranks,
                                          const PlanOptions& options) {
  std::vector<Plan> plans;
  for (Rank r = 0; r < ranks; ++r)
    plans.push_back(*compile_plan(**find_algorithm(algorithm),
                                  {.collective = Collective::kAllReduce, .ranks = ranks}, options,
                                  r));
  return plans;
}

}  // namespace tutti::test
