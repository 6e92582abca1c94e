// SPDX-License-Identifier: Apache-2.0
// What a rank holds of a model's state and sends in a step, by stage: formulas, and exact integers
// for units that are padded.
//
// Notation: P parameters; p, g, K bytes per parameter of parameters, gradients and the optimizer's
// state; N ranks that share a model; G microsteps per optimizer step. After Rajbhandari et al.,
// ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, SC 2020, section 3 and
// figure 1 (memory), section 7 (volume).
// Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::zero_memory {

enum class Stage : std::uint8_t { kDdp, kZero1, kZero2, kZero3 };
inline constexpr std::array kStages{Stage::kDdp, Stage::kZero1, Stage::kZero2, Stage::kZero3};
[[nodiscard]] std::string_view name_of(Stage stage);
[[nodiscard]] constexpr bool shards_optimizer(Stage stage) { return stage >= Stage::kZero1; }
[[nodiscard]] constexpr bool shards_gradients(Stage stage) { return stage >= Stage::kZero2; }
[[nodiscard]] constexpr bool shards_parameters(Stage stage) { return stage >= Stage::kZero3; }

// Adam's state in fp32 (Kingma and Ba, 2015), with the copy of the parameters that mixed precision
// updates (Micikevicius et al., Mixed Precision Training, 2018).
struct AdamBytes {
  std::uint64_t master = 4, momentum = 4, variance = 4;
};

// Bytes per parameter. The defaults are mixed precision: 2 + 2 + 12 = 16.
struct Accounting {
  std::uint64_t parameter = 2;
  std::uint64_t gradient = 2;
  std::uint64_t optimizer = AdamBytes{}.master + AdamBytes{}.momentum + AdamBytes{}.variance;
  [[nodiscard]] std::uint64_t total() const { return parameter + gradient + optimizer; }
};
// The parameters are their own master copy: 4 + 4 + 8 = 16.
inline constexpr Accounting kFloat32{4, 4, AdamBytes{}.momentum + AdamBytes{}.variance};

// Per rank, by the formulas; a share of N is not rounded.
struct StateBytes {
  double parameters = 0, gradients = 0, optimizer = 0;
  [[nodiscard]] double total() const { return parameters + gradients + optimizer; }
};
[[nodiscard]] StateBytes state_bytes(std::uint64_t parameters, Stage stage,
                                     const Accounting& accounting, std::uint64_t ranks);
// By which factor a stage needs less than DDP: with N ranks, and in the limit of many (infinite for
// ZeRO-3).
[[nodiscard]] double reduction(Stage stage, const Accounting& accounting, std::uint64_t ranks);
[[nodiscard]] double reduction_limit(Stage stage, const Accounting& accounting);

// The least N whose state fits; none if no number does.
[[nodiscard]] std::optional<std::uint64_t> least_ranks(std::uint64_t parameters, Stage stage,
                                                       const Accounting& accounting,
                                                       std::uint64_t memory_bytes);
// The most parameters whose state fits.
[[nodiscard]] std::uint64_t largest_model(Stage stage, const Accounting& accounting,
                                          std::uint64_t ranks, std::uint64_t memory_bytes);

// Units as a layout pads them: at its end to `shards` equal shards, each a multiple of so many
// elements (32 of two bytes are a cache line).
inline constexpr std::uint64_t kShardMultipleElements = 32;
[[nodiscard]] std::uint64_t padded_elements(std::uint64_t elements, std::uint64_t shards,
                                            std::uint64_t multiple = kShardMultipleElements);
[[nodiscard]] std::vector<std::uint64_t> padded_units(
    std::span<const std::uint64_t> unit_elements, std::uint64_t shards,
    std::uint64_t multiple = kShardMultipleElements);

// Per rank, to the byte, for units that are padded to `shards` shards: what is not sharded is held
// whole, with its padding.
struct ExactStateBytes {
  std::uint64_t parameters = 0, gradients = 0, optimizer = 0;
  [[nodiscard]] std::uint64_t total() const { return parameters + gradients + optimizer; }
};
[[nodiscard]] ExactStateBytes exact_state_bytes(std::span<const std::uint64_t> padded_units,
                                                Stage stage, const Accounting& accounting,
                                                std::uint64_t shards);
// Unit-sized buffers beside the state: parameters of the units in use and on their way (ZeRO-3),
// and the gradients of those in use and of one on its way (ZeRO-2 and 3). The defaults are FSDP's.
struct UnitBuffers {
  std::uint64_t units_in_use = 1, prefetch = 1;
  // Gradients of a unit that are there at once. More than one slot in a reduction: 2 in the fast
  // order, the depth of the tree in canonical order (floor(log2(slots)) + 1).
  std::uint64_t sums = 1;
};
struct TransientBytes {
  std::uint64_t gathered = 0, reducing = 0;
  [[nodiscard]] std::uint64_t total() const { return gathered + reducing; }
};
[[nodiscard]] TransientBytes transient_bytes(std::span<const std::uint64_t> padded_units,
                                             Stage stage, const Accounting& accounting,
                                             const UnitBuffers& buffers);

// How a model's state is spread and synchronized.
struct Sharding {
  Stage stage = Stage::kDdp;
  std::uint64_t ranks = 1;
  // Hybrid: shards among so many ranks of a host, replicas between hosts (FSDP's HYBRID_SHARD,
  // MiCS). 0: among all.
  std::uint64_t shard_ranks = 0;
  std::uint64_t microsteps = 1;
  bool keep_after_forward = false;  // ZeRO-3: parameters stay gathered from forward to backward
  [[nodiscard]] std::uint64_t shards() const { return shard_ranks > 0 ? shard_ranks : ranks; }
  [[nodiscard]] std::uint64_t replicas() const { return ranks / shards(); }
};
// Bytes that a rank sends in an optimizer step by bandwidth-optimal collectives.
struct VolumeBytes {
  double gradients = 0;  // reduce-scatter; DDP: its half of the all-reduce
  double gathered = 0;   // all-gather: before use (ZeRO-3), after the update (others)
  double replicas = 0;   // all-reduce of a shard between replicas (hybrid)
  [[nodiscard]] double total() const { return gradients + gathered + replicas; }
};
[[nodiscard]] VolumeBytes volume_bytes(std::uint64_t parameters, const Accounting& accounting,
                                       const Sharding& sharding);

// Bytes that cross hosts in a ZeRO-3 step of one microstep with ZeRO++: INT8 weights in the forward
// gather, none in the backward gather, INT4 gradients. Wang et al., ZeRO++: Extremely Efficient
// Collective Communication for Giant Model Training, 2023: 3 M becomes 0.75 M.
[[nodiscard]] double zeropp_cross_host_bytes(std::uint64_t parameters);

}  // namespace tutti::zero_memory
