// SPDX-License-Identifier: Apache-2.0
#include "device/choice.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "device/job.hpp"
#include "plan/choice.hpp"

namespace tutti::device {
namespace {

struct Shape {
  Messages messages;
  std::uint32_t replicas;
  std::uint64_t slot_bytes;  // of slots; of direct plans the most of a chunk in one slice
  bool direct = false;
};
// Packets for what is small: LL16, and LL128 where lines are whole. LL8 would have LL16's share of
// payload and clear each line besides; every device that runs these kernels stores 16 bytes whole.
// More replicas are more blocks, each with pieces of its own.
constexpr std::array kShapes{
    Shape{Messages::kLl16, 1, 0},
    Shape{Messages::kLl128, 1, 0},
    Shape{Messages::kLl128, 4, 0},
    Shape{Messages::kSlots, 2, 64 << 10},
    Shape{Messages::kSlots, 4, 128 << 10},
    Shape{Messages::kSlots, 8, 256 << 10},
    Shape{Messages::kSlots, 16, 256 << 10},
    Shape{Messages::kSlots, 16, 1 << 20},
    Shape{Messages::kSlots, 1, 256 << 10},  // where a rank has a block alone
    Shape{Messages::kCells, 1, 64 << 10, true},
    Shape{Messages::kCells, 4, 256 << 10, true},
    Shape{Messages::kCells, 16, 1 << 20, true},
};
constexpr std::uint32_t kSlotsEach = 2;

// The costs of one block of an H100 or H200: a message through the second-level cache, a step's
// barriers and fences, and its share of the memory's bandwidth (4.8 TB/s over 132 blocks). Not
// measured here.
constexpr HostCosts kPacketCosts{.alpha_ns = 1000, .step_ns = 300, .beta_ns_per_byte = 0.05};
constexpr HostCosts kSlotCosts{.alpha_ns = 2000, .step_ns = 700, .beta_ns_per_byte = 0.027};

Protocol protocol_of(const Shape& shape) {
  if (shape.direct) return Protocol::kDirect;
  return shape.messages == Messages::kSlots ? Protocol::kSlots : Protocol::kFlagged;
}

Candidate make_candidate(const Forced& forced, const Shape& shape, std::uint64_t arena_bytes) {
  Candidate candidate;
  candidate.messages = shape.messages;
  PlanOptions& options = candidate.options;
  options.protocol = protocol_of(shape);
  options.replicas = forced.replicas != 0 ? forced.replicas : shape.replicas;
  options.slots = forced.slots != 0 ? forced.slots : kSlotsEach;
  options.slot_bytes = forced.slot_bytes != 0 ? forced.slot_bytes : shape.slot_bytes;
  options.arena_bytes = arena_bytes;
  options.min_slices = std::max(forced.min_slices, 1U);
  options.cells_per_pair = kCellsPerPairOnDevice;
  options.connections_per_pair = kConnectionsPerPairOnDevice;
  if (shape.messages == Messages::kLl16) options.packets = PacketFormat::kLl16;
  if (shape.messages == Messages::kLl128) options.packets = PacketFormat::kLl128;
  return candidate;
}

}  // namespace

// Any root stands for all.
Result<const Choice::Counted*> Choice::count(const Algorithm& algorithm, const Problem& problem) {
  for (const auto& counted : counted_)
    if (counted->algorithm == &algorithm && counted->collective == problem.collective)
      return counted.get();
  TUTTI_TRY_ASSIGN(const ScheduleCounts counts, count_schedule(algorithm, problem));
  counted_.push_back(std::make_unique<Counted>(Counted{&algorithm, problem.collective, counts}));
  return counted_.back().get();
}

std::string Candidate::name() const {
  constexpr std::array<std::string_view, 5> kMessages{"", "cells", "LL8", "LL16", "LL128"};
  const std::string_view how = kMessages[static_cast<std::size_t>(messages)];
  return plan_name(*algorithm, options) + (how.empty() ? "" : fmt::format(" in {}", how));
}

Result<std::vector<Candidate>> Choice::price(const Forced& forced, const Problem& problem,
                                             std::uint64_t bytes) {
  const std::span<const Algorithm* const> tried =
      forced.algorithm != nullptr ? std::span(&forced.algorithm, 1) : listed_algorithms();
  std::vector<Candidate> all;
  std::string why;
  for (const Algorithm* const algorithm : tried) {
    if (forced.algorithm == nullptr && !algorithm->supports(problem)) continue;
    TUTTI_TRY_ASSIGN(const Counted* const counted, count(*algorithm, problem));
    const ScheduleCounts& counts = counted->counts;
    for (const Shape& shape : kShapes) {
      if (shape.direct != reads_peers(counts)) continue;
      if (shape.messages == Messages::kLl128 && !limits_.whole_lines) continue;
      // A device reaches what cudaMalloc gave on another one, but not what came from a pool or was
      // mapped by hand, and its kernel ends the context: only who asks for it takes that on.
      if (shape.direct && forced.algorithm == nullptr && !limits_.one_device) continue;
      if (forced.protocol && *forced.protocol != protocol_of(shape)) continue;
      Candidate candidate = make_candidate(forced, shape, limits_.arena_bytes);
      candidate.algorithm = algorithm;
      const std::uint64_t replicas = candidate.options.replicas;
      const Result<std::uint64_t> capacity =
          message_capacity(*algorithm, problem, candidate.options);
      const bool too_many = forced.replicas == 0 && replicas > limits_.blocks_each;
      if (too_many || !capacity) {
        if (why.empty())
          why =
              capacity
                  ? fmt::format(
                        "{} replicas are more than the {} blocks that each rank has on its device",
                        replicas, limits_.blocks_each)
                  : capacity.error().message;
        continue;
      }
      const std::uint64_t message =
          (bytes + counts.chunks - 1) / counts.chunks * counts.max_message_chunks;
      const std::uint64_t slices = std::max<std::uint64_t>(
          {1, candidate.options.min_slices, (message + *capacity - 1) / *capacity});
      // Epochs count messages in 24 bits; half of it, as the cut may round up.
      if (shape.messages != Messages::kSlots && slices * counts.max_steps >= (1U << 23)) continue;
      // A block a replica: each does its share of the bytes, beside the others.
      const HostCosts& costs = in_packets(shape.messages) ? kPacketCosts : kSlotCosts;
      candidate.slices = static_cast<std::uint32_t>(slices);
      candidate.cost =
          price_plan(counts, costs,
                     {.bytes = (bytes + replicas - 1) / replicas,
                      .slices = static_cast<std::uint32_t>((slices + replicas - 1) / replicas),
                      .replicas = 1,
                      .cores = limits_.ranks});
      all.push_back(std::move(candidate));
    }
  }
  if (!all.empty()) return all;
  return make_error(Code::kNotSupported,
                    fmt::format("there is no plan on devices for {} of {} bytes by {}: {}",
                                name_of(problem.collective), bytes,
                                forced.name.empty() ? "any algorithm" : forced.name,
                                why.empty() ? "it needs too many messages" : why));
}

Result<Candidate> Choice::choose(const Forced& forced, const Problem& problem,
                                 std::uint64_t bytes) {
  TUTTI_TRY_ASSIGN(const std::vector<Candidate> all, price(forced, problem, bytes));
  return *std::ranges::min_element(
      all, {}, [](const Candidate& candidate) { return candidate.cost.time_ns; });
}

}  // namespace tutti::device
