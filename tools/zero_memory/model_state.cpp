// SPDX-License-Identifier: Apache-2.0
#include "model_state.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tutti::zero_memory {
namespace {

// Bytes per parameter that every rank holds whole, and those that ranks share.
struct Split {
  std::uint64_t whole = 0, shared = 0;
};
Split split(Stage stage, const Accounting& accounting) {
  Split of;
  (shards_parameters(stage) ? of.shared : of.whole) += accounting.parameter;
  (shards_gradients(stage) ? of.shared : of.whole) += accounting.gradient;
  (shards_optimizer(stage) ? of.shared : of.whole) += accounting.optimizer;
  return of;
}

std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace

std::string_view name_of(Stage stage) {
  constexpr std::array<std::string_view, kStages.size()> kNames{"DDP", "ZeRO-1", "ZeRO-2",
                                                                "ZeRO-3"};
  return kNames[static_cast<std::size_t>(stage)];
}

// DDP (p + g + K) P; ZeRO-1 (p + g) P + K P / N; ZeRO-2 p P + (g + K) P / N; ZeRO-3
// (p + g + K) P / N. ZeRO, section 5 and figure 1.
StateBytes state_bytes(std::uint64_t parameters, Stage stage, const Accounting& accounting,
                       std::uint64_t ranks) {
  const auto count = static_cast<double>(parameters);
  const double share = count / static_cast<double>(ranks);
  const auto bytes = [&](std::uint64_t each, bool sharded) {
    return static_cast<double>(each) * (sharded ? share : count);
  };
  return {bytes(accounting.parameter, shards_parameters(stage)),
          bytes(accounting.gradient, shards_gradients(stage)),
          bytes(accounting.optimizer, shards_optimizer(stage))};
}

double reduction(Stage stage, const Accounting& accounting, std::uint64_t ranks) {
  const Split of = split(stage, accounting);
  return static_cast<double>(accounting.total()) /
         (static_cast<double>(of.whole) +
          static_cast<double>(of.shared) / static_cast<double>(ranks));
}

double reduction_limit(Stage stage, const Accounting& accounting) {
  const Split of = split(stage, accounting);
  if (of.whole == 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(accounting.total()) / static_cast<double>(of.whole);
}

// whole P + shared P / N <= memory, solved for N.
std::optional<std::uint64_t> least_ranks(std::uint64_t parameters, Stage stage,
                                         const Accounting& accounting, std::uint64_t memory_bytes) {
  const Split of = split(stage, accounting);
  const std::uint64_t whole = of.whole * parameters, shared = of.shared * parameters;
  if (whole > memory_bytes || (whole == memory_bytes && shared > 0)) return std::nullopt;
  if (shared == 0) return 1;
  return divide_up(shared, memory_bytes - whole);
}

// P (whole + shared / N) <= memory, solved for P.
std::uint64_t largest_model(Stage stage, const Accounting& accounting, std::uint64_t ranks,
                            std::uint64_t memory_bytes) {
  const Split of = split(stage, accounting);
  __extension__ using Wide = unsigned __int128;
  const Wide bytes = Wide{of.whole} * ranks + of.shared;  // of N parameters' worth
  if (bytes == 0) return 0;
  const Wide most = Wide{memory_bytes} * ranks / bytes;
  return static_cast<std::uint64_t>(
      std::min<Wide>(most, std::numeric_limits<std::uint64_t>::max()));
}

std::uint64_t padded_elements(std::uint64_t elements, std::uint64_t shards,
                              std::uint64_t multiple) {
  return divide_up(elements, shards * multiple) * shards * multiple;
}

std::vector<std::uint64_t> padded_units(std::span<const std::uint64_t> unit_elements,
                                        std::uint64_t shards, std::uint64_t multiple) {
  std::vector<std::uint64_t> padded;
  for (const std::uint64_t elements : unit_elements)
    padded.push_back(padded_elements(elements, shards, multiple));
  return padded;
}

ExactStateBytes exact_state_bytes(std::span<const std::uint64_t> padded_units, Stage stage,
                                  const Accounting& accounting, std::uint64_t shards) {
  const std::uint64_t whole =
      std::accumulate(padded_units.begin(), padded_units.end(), std::uint64_t{0});
  const auto bytes = [&](std::uint64_t each, bool sharded) {
    return each * (sharded ? whole / shards : whole);
  };
  return {bytes(accounting.parameter, shards_parameters(stage)),
          bytes(accounting.gradient, shards_gradients(stage)),
          bytes(accounting.optimizer, shards_optimizer(stage))};
}

// (u + d) U p + (u s + 1) U g, where U is the largest unit, u the units in use, d the prefetch and
// s the sums. With u = s = 1 that is PyTorch FSDP's (Zhao et al., VLDB 2023, section 3).
TransientBytes transient_bytes(std::span<const std::uint64_t> padded_units, Stage stage,
                               const Accounting& accounting, const UnitBuffers& buffers) {
  if (padded_units.empty()) return {};
  const std::uint64_t largest = *std::ranges::max_element(padded_units);
  const std::uint64_t units = padded_units.size();
  const std::uint64_t gathered = std::min(buffers.units_in_use + buffers.prefetch, units);
  const std::uint64_t reducing = std::min(buffers.units_in_use, units) * buffers.sums + 1;
  TransientBytes bytes;
  if (shards_parameters(stage)) bytes.gathered = gathered * largest * accounting.parameter;
  if (shards_gradients(stage)) bytes.reducing = reducing * largest * accounting.gradient;
  return bytes;
}

// Reduce-scatter and all-gather of S bytes each send S (N - 1) / N, an all-reduce both: Chan et
// al., Collective communication: theory, practice, and experience, 2007. ZeRO, section 7, counts
// DDP 2 P, ZeRO-1 and ZeRO-2 P + P, ZeRO-3 P + P + P, without accumulation. With G microsteps
// ZeRO-2 and ZeRO-3 have no whole gradients to accumulate into, so they reduce in each, between
// replicas too.
VolumeBytes volume_bytes(std::uint64_t parameters, const Accounting& accounting,
                         const Sharding& sharding) {
  const auto count = static_cast<double>(parameters);
  const auto shards = static_cast<double>(sharding.shards());
  const auto replicas = static_cast<double>(sharding.replicas());
  const auto microsteps = static_cast<double>(sharding.microsteps);
  const double p = count * static_cast<double>(accounting.parameter) * (shards - 1) / shards;
  const double g = count * static_cast<double>(accounting.gradient) * (shards - 1) / shards;
  VolumeBytes bytes;
  const double reductions = shards_gradients(sharding.stage) ? microsteps : 1;
  bytes.gradients = reductions * g;
  if (sharding.stage == Stage::kDdp)
    bytes.gathered = g;  // the second half of the all-reduce
  else if (!shards_parameters(sharding.stage))
    bytes.gathered = p;
  else
    bytes.gathered = microsteps * (sharding.keep_after_forward ? 1 : 2) * p;
  bytes.replicas = reductions * 2 * count * static_cast<double>(accounting.gradient) / shards *
                   (replicas - 1) / replicas;
  return bytes;
}

double zeropp_cross_host_bytes(std::uint64_t parameters) {
  const double M = 2 * static_cast<double>(parameters);  // 16-bit parameters
  return 0.5 * M + 0 + 0.25 * M;
}

}  // namespace tutti::zero_memory
