// SPDX-License-Identifier: Apache-2.0
#include "device/choice.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>

#include "device/job.hpp"
#include "plan/choice.hpp"

namespace tutti::device {
namespace {

struct Shape {
  Messages messages;
  std::uint64_t slot_bytes;  // of slots; of direct plans the most of a chunk in one slice
  bool direct = false;
};

// Packets for what is small: LL16, and LL128 where lines are whole. LL8 has LL16's share of payload
// and clears each line besides; it is there for ways that show 16 bytes in parts.
constexpr std::array kShapes{
    Shape{Messages::kLl8, 0},
    Shape{Messages::kLl16, 0},
    Shape{Messages::kLl128, 0},
    Shape{Messages::kSlots, 64 << 10},
    Shape{Messages::kSlots, 256 << 10},
    Shape{Messages::kSlots, 1 << 20},
    Shape{Messages::kCells, 64 << 10, true},
    Shape{Messages::kCells, 1 << 20, true},
    Shape{Messages::kCells, 0},  // whoever names them
};
constexpr std::uint32_t kSlotsEach = 2;
// A block with less than this of each operand to move takes longer to begin than to move it.
constexpr std::uint64_t kLeastPieceBytes = 4 << 10;

Protocol protocol_of(const Shape& shape) {
  if (shape.direct) return Protocol::kDirect;
  return shape.messages == Messages::kSlots ? Protocol::kSlots : Protocol::kFlagged;
}

Candidate make_candidate(const Forced& forced, const Shape& shape, std::uint32_t replicas,
                         std::uint32_t slots, std::uint64_t arena_bytes) {
  Candidate candidate;
  candidate.messages = shape.messages;
  PlanOptions& options = candidate.options;
  options.protocol = protocol_of(shape);
  options.replicas = replicas;
  options.slots = slots;
  options.slot_bytes = forced.slot_bytes != 0 ? forced.slot_bytes : shape.slot_bytes;
  options.arena_bytes = arena_bytes;
  options.min_slices = std::max(forced.min_slices, 1U);
  options.cells_per_pair = kCellsPerPairOnDevice;
  options.connections_per_pair = kConnectionsPerPairOnDevice;
  if (in_packets(shape.messages)) options.packets = format_of(shape.messages);
  return candidate;
}

// A replica is a block's: powers of two, and all that a rank has.
std::vector<std::uint32_t> replica_counts(const Forced& forced, std::uint32_t blocks_each) {
  if (forced.replicas != 0) return {forced.replicas};
  const std::uint32_t most = std::min(blocks_each, kConnectionsPerPairOnDevice);
  std::vector<std::uint32_t> counts;
  for (std::uint32_t replicas = 1; replicas < most; replicas *= 2) counts.push_back(replicas);
  counts.push_back(most);
  return counts;
}

// In packets, which are for small calls, rather as many slots as do without credits, if one slice a
// replica fits then.
std::vector<std::uint32_t> slot_counts(const Forced& forced, const Shape& shape,
                                       const ScheduleCounts& counts) {
  if (forced.slots != 0) return {forced.slots};
  const std::uint32_t without_credits = 2 * counts.connection_messages;
  if (!in_packets(shape.messages) || !counts.mutual || without_credits <= kSlotsEach ||
      without_credits > kMaxSlots)
    return {kSlotsEach};
  return {without_credits, kSlotsEach};
}

// Of at least `needed` slices as many as keep all replicas busy, all alike, while pieces are worth
// it.
std::uint64_t slices_of(std::uint64_t needed, std::uint64_t replicas, std::uint64_t chunk_bytes) {
  const std::uint64_t worth = std::max<std::uint64_t>(chunk_bytes / kLeastPieceBytes, 1);
  if (needed < replicas) return std::max(needed, std::min(replicas, worth));
  const std::uint64_t whole = (needed + replicas - 1) / replicas * replicas;
  return whole <= worth ? whole : needed;
}

bool fits(const Shape& shape, const ScheduleCounts& counts, const Forced& forced,
          const Choice::Limits& limits) {
  if (shape.direct != works_in_peers(counts)) return false;
  if (forced.protocol && *forced.protocol != protocol_of(shape)) return false;
  // A device reaches what cudaMalloc gave on another one, but not what came from a pool or was
  // mapped by hand, and its kernel ends the context: only who asks for it takes that on.
  if (shape.direct) return forced.algorithm != nullptr || limits.one_device;
  if (forced.cells) return shape.messages == Messages::kCells;
  if (forced.packets)
    return in_packets(shape.messages) && format_of(shape.messages) == *forced.packets &&
           (limits.whole_lines || shape.messages == Messages::kLl8);
  if (in_packets(shape.messages)) return limits.whole_lines == (shape.messages != Messages::kLl8);
  return shape.messages == Messages::kSlots;
}

// A block a replica, beside the others: the price is that of the one that has most to do. False: it
// would need too many messages.
bool price_one(Candidate& candidate, const ScheduleCounts& counts, std::uint64_t capacity,
               std::uint64_t bytes, const Choice::Limits& limits) {
  const std::uint64_t chunk = (bytes + counts.chunks - 1) / counts.chunks;
  const std::uint64_t needed =
      std::max<std::uint64_t>({1, candidate.options.min_slices,
                               (chunk * counts.max_message_chunks + capacity - 1) / capacity});
  const std::uint64_t replicas = candidate.options.replicas;
  const std::uint64_t slices = slices_of(needed, replicas, chunk);
  // Epochs count messages in 24 bits; half of it, as the cut may round up.
  if (candidate.messages != Messages::kSlots && slices * counts.max_steps >= (1U << 23))
    return false;
  // Of the busiest block, which has several replicas if more are forced than there are blocks.
  const std::uint64_t each = (replicas + limits.blocks_each - 1) / limits.blocks_each;
  const std::uint64_t own = std::min(slices, (slices + replicas - 1) / replicas * each);
  candidate.slices = static_cast<std::uint32_t>(slices);
  candidate.one_lane = counts.max_lanes <= 1;
  candidate.mutual = counts.mutual;
  candidate.connection_messages = counts.connection_messages;
  candidate.cost = PlanPrices(counts, costs_of(limits.costs, candidate.messages),
                              {.replicas = 1, .cores = limits.ranks})
                       .at((bytes * own + slices - 1) / slices, static_cast<std::uint32_t>(own));
  return true;
}

struct Tried {
  const Algorithm& algorithm;
  const ScheduleCounts& counts;
  const Shape& shape;
  std::uint32_t replicas;
};

// Nothing: no message has room in this way, which `why` says if nothing has so far, or there would
// be too many.
std::optional<Candidate> find_candidate(const Tried& tried, const Forced& forced,
                                        const Problem& problem, std::uint64_t bytes,
                                        const Choice::Limits& limits, std::string& why) {
  std::optional<Candidate> found;
  for (const std::uint32_t slots : slot_counts(forced, tried.shape, tried.counts)) {
    Candidate candidate =
        make_candidate(forced, tried.shape, tried.replicas, slots, limits.arena_bytes);
    candidate.algorithm = &tried.algorithm;
    const Result<std::uint64_t> capacity =
        message_capacity(tried.algorithm, problem, candidate.options);
    if (!capacity) {
      if (why.empty()) why = capacity.error().message;
      continue;
    }
    if (!price_one(candidate, tried.counts, *capacity, bytes, limits)) continue;
    found = std::move(candidate);
    if (found->without_credits(found->slices)) break;
  }
  return found;
}

}  // namespace

const HostCosts& costs_of(const DeviceCosts& costs, Messages messages) {
  return in_packets(messages) ? costs.packets : costs.slots;
}

// Any root stands for all.
Result<const Choice::Counted*> Choice::count(const Algorithm& algorithm, const Problem& problem) {
  for (const auto& counted : counted_)
    if (counted->algorithm == &algorithm && counted->collective == problem.collective)
      return counted.get();
  TUTTI_TRY_ASSIGN(const ScheduleCounts counts, count_schedule(algorithm, problem));
  counted_.push_back(std::make_unique<Counted>(Counted{&algorithm, problem.collective, counts}));
  return counted_.back().get();
}

bool Candidate::without_credits(std::uint64_t call_slices) const {
  const std::uint64_t each = (call_slices + options.replicas - 1) / options.replicas;
  return mutual && messages != Messages::kLl8 && 2 * each * connection_messages <= options.slots;
}

std::string Candidate::name() const {
  std::string name = plan_name(*algorithm, options);
  const std::string_view any = name_of(Protocol::kFlagged);
  if (messages == Messages::kCells && options.protocol == Protocol::kFlagged)
    name.replace(name.find(any), any.size(), "cells");
  // Left out, they would be the price's to choose here.
  if (name.find(":replicas=") == std::string::npos) {
    const std::size_t protocol = name.find('@');
    name.insert(std::min(name.find(':', protocol), name.size()), ":replicas=1");
  }
  return name;
}

Result<std::vector<Candidate>> Choice::price(const Forced& forced, const Problem& problem,
                                             std::uint64_t bytes) {
  // A plan for all collectives that have it is none for those that have it on hosts alone.
  if (forced.for_all && forced.algorithm != nullptr && forced.algorithm->shape(problem).apart)
    return price({}, problem, bytes);
  const std::span<const Algorithm* const> tried =
      forced.algorithm != nullptr ? std::span(&forced.algorithm, 1) : listed_algorithms();
  const std::vector<std::uint32_t> replicas_tried = replica_counts(forced, limits_.blocks_each);
  std::vector<Candidate> all;
  std::string why;
  bool fitted = false;
  for (const Algorithm* const algorithm : tried) {
    if (forced.algorithm == nullptr && !algorithm->supports(problem)) continue;
    TUTTI_TRY_ASSIGN(const Counted* const counted, count(*algorithm, problem));
    const ScheduleCounts& counts = counted->counts;
    // In place, a call would need a second output and a copy after it.
    if (algorithm->shape(problem).apart) {
      why = "it needs input and output apart, and a kernel has one output";
      continue;
    }
    for (const Shape& shape : kShapes) {
      if (!fits(shape, counts, forced, limits_)) continue;
      fitted = true;
      for (const std::uint32_t replicas : replicas_tried)
        if (auto found = find_candidate({*algorithm, counts, shape, replicas}, forced, problem,
                                        bytes, limits_, why))
          all.push_back(*std::move(found));
    }
  }
  if (!all.empty()) return all;
  return make_error(Code::kNotSupported,
                    fmt::format("there is no plan on devices for {} of {} bytes by {}: {}",
                                name_of(problem.collective), bytes,
                                forced.name.empty() ? "any algorithm" : forced.name,
                                !why.empty() ? why
                                : fitted     ? "it needs too many messages"
                                             : "it does not run in this way among these devices"));
}

Result<Candidate> Choice::choose(const Forced& forced, const Problem& problem,
                                 std::uint64_t bytes) {
  TUTTI_TRY_ASSIGN(const std::vector<Candidate> all, price(forced, problem, bytes));
  return *std::ranges::min_element(
      all, {}, [](const Candidate& candidate) { return candidate.cost.time_ns; });
}

}  // namespace tutti::device
