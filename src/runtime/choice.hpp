// Choice: which algorithm, protocol, replication and slot size runs a call, by price.
//
// Rank 0 counts the schedules and measures nothing; its Settings reach all ranks at start, so that
// everything that shapes communication is equal on all ranks by construction. No size threshold
// stands here: the cheapest candidate wins.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.hpp"
#include "model/price.hpp"
#include "runtime/peer_memory.hpp"
#include "runtime/plan.hpp"

namespace tutti {

inline constexpr std::size_t kMaxAlgorithms = 16;

// Which access to its peers' memory a rank has, and what stands in the way of a better one.
struct AccessView {
  PeerAccess access = PeerAccess::kNone;
  Rank refused = kNoRank;  // the first peer whose memory it may not read
  std::int32_t error = 0;  // why, as errno; 0: TUTTI_CMA=off
  Rank rank = kNoRank;     // whose view this is
};

// What rank 0 decides for all. Plain bytes: exchanged as they are between equal builds.
struct Settings {
  std::uint64_t layout = sizeof(Settings);  // of this struct, and a guard against other builds
  std::uint64_t arena_bytes = 0;
  std::uint64_t slot_bytes = 0;  // forced; 0: by price
  std::uint32_t slots = 0;       // forced; 0: by price
  std::uint32_t replicas = 0;    // forced; 0: by price
  std::uint32_t min_slices = 0;  // forced; 0: as few as fit
  std::int32_t cores = 1;
  std::array<char, kMaxAlgorithmName> algorithm{};  // forced, by name; "": by price
  ProtocolChoice protocol = ProtocolChoice::kAuto;
  HostCosts flagged, slotted, attached, mapped;
  AccessView direct;  // each rank's own, then the least of all
  // Of all_algorithms(), then direct_algorithms(); ranks == 0: does not cover the job.
  std::array<ScheduleCounts, kMaxAlgorithms> counts{};
};

// Rank 0's settings. Errors: kInvalidArgument for an unknown TUTTI_ALGO, naming the known ones.
[[nodiscard]] Result<Settings> make_settings(const Config& config, std::int32_t ranks,
                                             std::int32_t cores);
// A rank's own forced settings, without counts: to be compared with rank 0's.
[[nodiscard]] Result<Settings> forced_settings(const Config& config);
// The variable in which two ranks' forced settings differ; empty if they agree.
[[nodiscard]] std::string first_difference(const Settings& a, const Settings& b);
// Checks what came from a peer: a bad value is refused, never used.
[[nodiscard]] Status check_settings(const Settings& settings);

// The algorithm that a user names; null for "" and "auto". kInvalidArgument says which there are.
[[nodiscard]] Result<const Algorithm*> forced_algorithm(std::string_view name);

struct Candidate {
  const Algorithm* algorithm = nullptr;
  PlanOptions options;
  std::uint64_t message_bytes = 0;  // as the plan will lay it out
  ScheduleCounts counts;
  double price_ns = 0;
};

// What is tried: an algorithm with the counts of its schedule.
struct Contender {
  const Algorithm* algorithm = nullptr;
  ScheduleCounts counts;
};
// `forced` alone, or, if it is null, every family that covers the job, as rank 0 counted it; direct
// forms only where all ranks can read each other's memory. Pure, so equal on all ranks.
// kNotSupported if `forced` does not cover the job, or needs memory that is out of reach.
[[nodiscard]] Result<std::vector<Contender>> contenders(const Settings& settings,
                                                        std::int32_t ranks,
                                                        const Algorithm* forced);

// All candidates for an all-reduce of `bytes`, cheapest first; ties by order of the contenders.
// Pure.
[[nodiscard]] std::vector<Candidate> rank_candidates(const Settings& settings,
                                                     std::span<const Contender> contenders,
                                                     std::uint64_t bytes);

}  // namespace tutti
