// SPDX-License-Identifier: Apache-2.0
// Where this process stands among those that a launcher started: who the launcher is, rank, number
// of ranks, and by which way the unique id can come.
//
// Reads the environment and asks whether one descriptor is a socket; starts, opens and waits for
// nothing. Pure but for that; any thread. If launchers are nested, the innermost one counts.
#pragma once

#include <functional>
#include <string>

#include "base/config.hpp"
#include "base/result.hpp"

namespace tutti::launch {

// How the unique id comes from rank 0 to the others.
enum class Store : std::uint8_t {
  kNone,     // one rank: nobody to tell
  kPmi,      // key-value store over the PMI-1 wire protocol (Hydra; Slurm's pmi2)
  kPmix,     // key-value store of a PMIx server (Open MPI, PRRTE; Slurm's pmix)
  kAddress,  // no store: every rank makes the same id from an address and a secret
};
[[nodiscard]] std::string_view name_of(Store store);

inline constexpr std::int32_t kUnknown = -1;

// Place::launcher where the user has set TUTTI_RANK and TUTTI_RANKS.
inline constexpr std::string_view kByHand = "environment";

struct Place {
  std::string launcher = "none";
  Store store = Store::kNone;
  std::int32_t rank = 0;
  std::int32_t ranks = 1;       // kUnknown: only the PMIx server knows
  std::int32_t local_rank = 0;  // among the ranks of this host; kUnknown: nobody says
  std::int32_t local_ranks = 1;
  int pmi_fd = -1;   // kPmi; -1: it was closed on the way here
  std::string root;  // kAddress: "host:port"; empty: nobody said where
  std::string job;   // kAddress: the launcher's name of this run, public, equal on all ranks
};

struct Surroundings {
  Getenv getenv;
  std::function<bool(int)> is_socket;  // an open descriptor of this process that is a socket
};
// Returns the environment of this process.
[[nodiscard]] Surroundings process_surroundings();

// Error: kInvalidArgument, one line, for variables that contradict each other or are no numbers.
[[nodiscard]] Result<Place> find_place(const Config& config, const Surroundings& around);

// rank, ranks, local_rank and local_ranks fit each other.
[[nodiscard]] Status check_place(const Place& place);

// One rank alone needs no store and is the first on its host.
void settle(Place& place);

}  // namespace tutti::launch
