#include "runtime/choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tutti {
namespace {

// Prior costs of the two protocols over shared memory, until a calibration replaces them. Measured
// with perf/bench_connection and bench_kernels on an AMD EPYC (Zen 5, 2 cores of a virtual machine,
// 32 MiB L3), November 2026; docs/performance.md holds the runs.
constexpr HostCosts kFlaggedPrior{
    .alpha_ns = 45, .step_ns = 25, .beta_ns_per_byte = 0.025, .switch_ns = 900};
constexpr HostCosts kSlottedPrior{
    .alpha_ns = 105, .step_ns = 35, .beta_ns_per_byte = 0.0125, .switch_ns = 900};
// Reading a peer's memory instead, weighed against the slots above, whose price leaves out that
// every byte crosses between the cores twice (once for the writer, once for the reader) and a read
// one only once. So these constants are what makes the ratio right, between two states of that
// machine: cores near (0.05 ns a byte and crossing), where cross-memory attach takes 1.2 of the
// time by slots at 1 MiB among two processes, and cores far (0.27 ns), where it takes 0.55. Plain
// loads take 0.55 to 0.85.
constexpr HostCosts kAttachedPrior{.alpha_ns = 45,
                                   .step_ns = 25,
                                   .beta_ns_per_byte = 0.0125,
                                   .switch_ns = 900,
                                   .remote_ns = 900,
                                   .remote_ns_per_byte = 0.01,
                                   .remote_crowd_ns_per_byte = 0.05};
constexpr HostCosts kMappedPrior{.alpha_ns = 45,
                                 .step_ns = 25,
                                 .beta_ns_per_byte = 0.0125,
                                 .switch_ns = 900,
                                 .remote_ns = 25,
                                 .remote_ns_per_byte = 0.002,
                                 .remote_crowd_ns_per_byte = 0.05};

static_assert(kMostSlots == kMaxSlots, "what TUTTI_SLOTS allows, a connection must hold");

struct Shape {
  Protocol protocol;
  std::uint32_t replicas;
  std::uint32_t slots;
  std::uint64_t slot_bytes;
};

// What is tried for every algorithm. Slot sizes: small ones keep the pipe's fill short, large ones
// spread the cost of a step.
constexpr std::array kShapes{
    Shape{Protocol::kFlagged, 1, 2, 0},       Shape{Protocol::kSlots, 1, 2, 256 << 10},
    Shape{Protocol::kSlots, 2, 2, 16 << 10},  Shape{Protocol::kSlots, 2, 2, 64 << 10},
    Shape{Protocol::kSlots, 2, 2, 128 << 10}, Shape{Protocol::kDirect, 1, 2, 0},
};

const HostCosts& costs_of(const Settings& settings, Protocol protocol) {
  if (protocol == Protocol::kFlagged) return settings.flagged;
  if (protocol == Protocol::kSlots) return settings.slotted;
  return settings.direct.access == PeerAccess::kMapped ? settings.mapped : settings.attached;
}

std::optional<Candidate> make_candidate(const Settings& settings, const Contender& contender,
                                        const Shape& shape, std::uint64_t bytes) {
  const Algorithm& algorithm = *contender.algorithm;
  Candidate c{
      .algorithm = &algorithm,
      .options = {.protocol = shape.protocol,
                  .replicas = settings.replicas != 0 ? settings.replicas : shape.replicas,
                  .slots = settings.slots != 0 ? settings.slots : shape.slots,
                  .slot_bytes = settings.slot_bytes != 0 ? settings.slot_bytes : shape.slot_bytes,
                  .arena_bytes = settings.arena_bytes,
                  .min_slices = std::max(settings.min_slices, 1u)},
      .counts = contender.counts};
  const Problem problem{.ranks = contender.counts.ranks};
  const Result<std::uint64_t> capacity = message_capacity(algorithm, problem, c.options);
  if (!capacity) return std::nullopt;
  c.message_bytes = *capacity;
  const std::uint64_t chunk =
      (bytes + c.counts.chunks - 1) / c.counts.chunks * c.counts.max_message_chunks;
  const std::uint64_t slices = std::max<std::uint64_t>(
      {1, settings.min_slices, (chunk + c.message_bytes - 1) / c.message_bytes});
  // Epochs of flagged cells count messages in 24 bits; far beyond any size where they could win.
  if (shape.protocol != Protocol::kSlots && slices * c.counts.max_steps >= (1u << 24))
    return std::nullopt;
  c.price_ns = price_ns(c.counts, costs_of(settings, shape.protocol),
                        {.bytes = bytes,
                         .slices = static_cast<std::uint32_t>(slices),
                         .replicas = c.options.replicas,
                         .cores = settings.cores});
  return c;
}

bool reads_peers(const ScheduleCounts& counts) { return counts.total_remotes > 0; }

bool admits(ProtocolChoice choice, Protocol protocol) {
  if (protocol == Protocol::kDirect) return choice == ProtocolChoice::kAuto;
  return choice == ProtocolChoice::kAuto ||
         (choice == ProtocolChoice::kFlagged) == (protocol == Protocol::kFlagged);
}

}  // namespace

Result<const Algorithm*> forced_algorithm(std::string_view name) {
  if (name.empty() || name == "auto") return nullptr;
  if (name.size() >= kMaxAlgorithmName)
    return make_error(Code::kInvalidArgument,
                      fmt::format("an algorithm's name has at most {} characters, not {}",
                                  kMaxAlgorithmName - 1, name.size()));
  return find_algorithm(name).map_error([](Error error) {
    error.message += "; or auto";
    return error;
  });
}

Result<Settings> forced_settings(const Config& config) {
  Settings settings;
  settings.arena_bytes = config.arena_bytes;
  settings.slot_bytes = config.slot_bytes == 0 ? 0 : config.slot_bytes + kSlotHeaderBytes;
  settings.slots = config.slots;
  settings.replicas = config.replicas;
  settings.min_slices = config.slices;
  TUTTI_TRY_ASSIGN(const Algorithm* const forced, forced_algorithm(config.algo));
  if (forced != nullptr) std::ranges::copy(forced->name, settings.algorithm.begin());
  settings.protocol = config.protocol;
  settings.flagged = kFlaggedPrior;
  settings.slotted = kSlottedPrior;
  settings.attached = kAttachedPrior;
  settings.mapped = kMappedPrior;
  return settings;
}

std::string first_difference(const Settings& a, const Settings& b) {
  if (a.layout != b.layout) return "the version of Tutti";
  if (a.arena_bytes != b.arena_bytes) return "TUTTI_ARENA_BYTES";
  if (a.slot_bytes != b.slot_bytes) return "TUTTI_SLOT_BYTES";
  if (a.slots != b.slots) return "TUTTI_SLOTS";
  if (a.replicas != b.replicas) return "TUTTI_REPLICAS";
  if (a.min_slices != b.min_slices) return "TUTTI_SLICES";
  if (a.algorithm != b.algorithm) return "TUTTI_ALGO (or the configuration's algorithm)";
  if (a.protocol != b.protocol) return "TUTTI_PROTO";
  return {};
}

namespace {

// In the order of Settings::counts.
std::vector<const Algorithm*> counted_algorithms() {
  std::vector<const Algorithm*> list;
  for (const auto& part : {all_algorithms(), direct_algorithms()})
    list.insert(list.end(), part.begin(), part.end());
  list.resize(std::min(list.size(), kMaxAlgorithms));
  return list;
}

Error out_of_reach(const Algorithm& algorithm, const AccessView& view) {
  const std::string why = view.error == 0
                              ? fmt::format("rank {} has TUTTI_CMA=off", view.rank)
                              : fmt::format("rank {} may not read the memory of rank {}: {}",
                                            view.rank, view.refused, std::strerror(view.error));
  return {Code::kNotSupported,
          fmt::format("{} reads other ranks' memory, and {}; choose another algorithm or auto",
                      algorithm.name, why),
          kNoRank};
}

}  // namespace

Result<Settings> make_settings(const Config& config, std::int32_t ranks, std::int32_t cores) {
  TUTTI_TRY_ASSIGN(Settings settings, forced_settings(config));
  settings.cores = std::max(cores, 1);
  const std::vector<const Algorithm*> all = counted_algorithms();
  const Problem problem{.collective = Collective::kAllReduce, .ranks = ranks};
  for (std::size_t i = 0; i < all.size(); ++i) {
    settings.counts[i].ranks = 0;
    if (!all[i]->supports(problem)) continue;
    TUTTI_TRY_ASSIGN(const Schedule schedule, build_schedule(*all[i], problem));
    settings.counts[i] = count_schedule(schedule);
  }
  return settings;
}

Status check_settings(const Settings& s) {
  const bool sound =
      s.layout == sizeof(Settings) && s.cores >= 1 && s.slots <= kMostSlots &&
      s.replicas <= kMostReplicas && s.algorithm.back() == 0 &&
      s.protocol <= ProtocolChoice::kSlots && s.direct.access <= PeerAccess::kMapped &&
      std::all_of(s.counts.begin(), s.counts.end(),
                  [](const ScheduleCounts& c) { return c.ranks >= 0 && c.chunks >= 1; });
  if (!sound)
    return make_error(Code::kInvalidUsage,
                      "rank 0 sent settings of another build; start all ranks with one version", 0);
  return {};
}

Result<std::vector<Contender>> contenders(const Settings& settings, std::int32_t ranks,
                                          const Algorithm* forced) {
  std::vector<Contender> list;
  const AccessView& view = settings.direct;
  const auto within_reach = [&](const ScheduleCounts& counts) {
    return !reads_peers(counts) || view.access != PeerAccess::kNone;
  };
  if (forced != nullptr) {
    TUTTI_TRY_ASSIGN(const Schedule schedule, build_schedule(*forced, {.ranks = ranks}));
    list.push_back({forced, count_schedule(schedule)});
    if (!within_reach(list.back().counts)) return tl::unexpected(out_of_reach(*forced, view));
    return list;
  }
  const std::vector<const Algorithm*> all = counted_algorithms();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (settings.counts[i].ranks == ranks && within_reach(settings.counts[i]))
      list.push_back({all[i], settings.counts[i]});
  return list;
}

std::vector<Candidate> rank_candidates(const Settings& settings,
                                       std::span<const Contender> contenders, std::uint64_t bytes) {
  std::vector<Candidate> candidates;
  for (const Contender& contender : contenders)
    for (const Shape& shape : kShapes) {
      if (!admits(settings.protocol, shape.protocol)) continue;
      if (reads_peers(contender.counts) != (shape.protocol == Protocol::kDirect)) continue;
      if (auto candidate = make_candidate(settings, contender, shape, bytes))
        candidates.push_back(*std::move(candidate));
    }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.price_ns < b.price_ns; });
  return candidates;
}

}  // namespace tutti
