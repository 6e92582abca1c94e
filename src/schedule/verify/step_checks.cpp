// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/step_checks.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>

namespace tutti::proof {

std::uint32_t location_of(const ScheduleShape& shape, std::uint32_t replica, const Operand& operand,
                          std::uint32_t k) {
  if (operand.buffer != BufferKind::kScratch) {
    const bool behind = shape.apart && operand.buffer == BufferKind::kInput;
    return (behind ? shape.chunks + shape.scratch_chunks : 0) + operand.span.at(k, shape.chunks);
  }
  const std::uint32_t rooms = shape.scratch_chunks * shape.replicas;
  return shape.chunks + operand.span.at(k, rooms) - replica * shape.scratch_chunks;
}

std::string name_of_location(const ScheduleShape& shape, std::uint32_t location) {
  const std::uint32_t behind = shape.chunks + shape.scratch_chunks;
  if (is_scratch_room(shape, location))
    return fmt::format("scratch room {}", location - shape.chunks);
  if (location >= behind) return fmt::format("input chunk {}", location - behind);
  return fmt::format("output {}chunk {}", shape.apart ? "" : "(in place: input) ", location);
}

namespace {

// The shape has at least one rank, chunk and replica.
Status check_blocks(const ScheduleShape& shape) {
  const auto ranks = static_cast<std::size_t>(shape.ranks);
  const CollectiveInfo& info = info_of(shape.collective);
  if (info.blocks && shape.chunks % ranks != 0)
    return fall(Rule::kBlocks, fmt::format("{} chunks of {}, expected a multiple of {} ranks",
                                           shape.chunks, info.name, ranks));
  if (shape.block_ranks.empty()) return {};
  if (!info.blocks)
    return fall(
        Rule::kBlocks,
        fmt::format("{} has a block map, but its data is not divided into blocks", info.name));
  if (shape.block_ranks.size() != ranks * shape.replicas)
    return fall(Rule::kBlocks,
                fmt::format("{} ranks in the block map, expected {} for {} replicas",
                            shape.block_ranks.size(), ranks * shape.replicas, shape.replicas));
  std::vector<std::uint32_t> last_seen(ranks, ~std::uint32_t{0});  // by rank: in which replica
  for (std::size_t i = 0; i < shape.block_ranks.size(); ++i) {
    const Rank rank = shape.block_ranks[i];
    const auto replica = static_cast<std::uint32_t>(i / ranks);
    if (rank < 0 || rank >= shape.ranks || last_seen[static_cast<std::size_t>(rank)] == replica)
      return fall(Rule::kBlocks,
                  fmt::format("replica {}, place {}: rank {}, expected each rank once", replica,
                              i % ranks, rank));
    last_seen[static_cast<std::size_t>(rank)] = replica;
  }
  return {};
}

}  // namespace

namespace {

tl::unexpected<Error> wrong(const char* what, std::uint64_t found, const char* expected) {
  return fall(Rule::kShape, fmt::format("{} is {}, expected {}", what, found, expected));
}

}  // namespace

Status check_shape(const ScheduleShape& shape) {
  if (shape.ranks < 1)
    return fall(Rule::kShape, fmt::format("ranks is {}, expected at least 1", shape.ranks));
  if (shape.root < 0 || shape.root >= shape.ranks)
    return fall(Rule::kShape, fmt::format("root is {}, expected a rank", shape.root));
  if (shape.chunks < 1) return wrong("chunks", shape.chunks, "at least 1");
  if (shape.replicas < 1) return wrong("replicas", shape.replicas, "at least 1");
  TUTTI_TRY(check_blocks(shape));
  if (shape.scratch_versions < 1 || shape.scratch_versions > kMaxVersions)
    return wrong("scratch_versions", shape.scratch_versions, "1..64");
  if (shape.tags < 1) return wrong("tags", shape.tags, "at least 1");
  constexpr std::uint64_t kTagLimit = std::uint64_t{1} << 16;
  if (std::uint64_t{shape.tags} * shape.replicas > kTagLimit)
    return wrong("tags", shape.tags, "at most 65536 over all replicas");
  return {};
}

Status check_shape(const Schedule& schedule) {
  const ScheduleShape& shape = schedule.shape;
  if (shape.ranks >= 1 && schedule.ranks.size() != static_cast<std::size_t>(shape.ranks))
    return fall(Rule::kShape, fmt::format("there are {} programs for {} ranks",
                                          schedule.ranks.size(), shape.ranks));
  TUTTI_TRY(check_shape(shape));
  const std::uint64_t ranks = static_cast<std::uint64_t>(shape.ranks);
  // Each factor first, so that the product cannot wrap.
  if (shape.chunks > kMaxLocations || shape.scratch_chunks > kMaxLocations / shape.replicas ||
      locations_of(shape) > kMaxLocations / ranks)
    return fall(Rule::kShape,
                "the schedule has more chunks and scratch slots than the verifier accepts (2^28 "
                "over all ranks)");
  return {};
}

Status StepChecker::check(const Site& site, const Lane& lane, const Step& step) {
  site_ = site;
  if (step.destinations.empty()) return fall_here(Rule::kOperands, "no destination");
  if (step.sources.empty()) return fall_here(Rule::kOperands, "no source");
  for (const Operand& operand : step.destinations) TUTTI_TRY(check_operand(lane, operand, true));
  for (const Operand& operand : step.sources) TUTTI_TRY(check_operand(lane, operand, false));
  TUTTI_TRY(check_counts(step));
  TUTTI_TRY(check_connections(step));
  return check_overlap(lane, step);
}

Status StepChecker::check_operand(const Lane& lane, const Operand& operand, bool destination) {
  const ScheduleShape& shape = schedule_.shape;
  if (operand.kind == OperandKind::kSend && !destination)
    return fall_here(Rule::kOperands, "a send among the sources");
  if (operand.kind == OperandKind::kRecv && destination)
    return fall_here(Rule::kOperands, "a receive among the destinations");
  if (destination && !is_message(operand) && operand.buffer == BufferKind::kInput)
    return fall_here(Rule::kOperands, "input among the destinations");
  if (operand.kind != OperandKind::kLocal) {
    if (operand.peer < 0 || operand.peer >= shape.ranks)
      return fall_here(Rule::kPeer,
                       fmt::format("peer {}, expected 0..{}", operand.peer, shape.ranks - 1));
    if (operand.peer == site_.rank) return fall_here(Rule::kPeer, "the peer is the rank itself");
  }
  if (is_message(operand) && operand.tag / shape.tags != lane.replica)
    return fall_here(Rule::kTag, fmt::format("tag {}, expected {}..{} for replica {}", operand.tag,
                                             lane.replica * shape.tags,
                                             (lane.replica + 1) * shape.tags - 1, lane.replica));
  return check_span(lane, operand);
}

Status StepChecker::check_span(const Lane& lane, const Operand& operand) {
  const ScheduleShape& shape = schedule_.shape;
  const Span& span = operand.span;
  const std::uint64_t count = std::uint64_t{span.run} * span.repetitions;
  if (count == 0) return {};
  const bool logical = is_logical(operand);
  const std::uint64_t limit = logical ? shape.chunks : shape.scratch_chunks;
  if (count > limit)
    return fall_here(Rule::kSpan, fmt::format("{} chunks of the {} there are", count, limit));
  if (logical) {
    if (span.first < limit) return check_extent(operand);
    return fall_here(Rule::kSpan, fmt::format("chunk {}, expected 0..{}", span.first, limit - 1));
  }
  const std::uint64_t low = std::uint64_t{lane.replica} * shape.scratch_chunks;
  const std::uint64_t last =
      span.first + std::uint64_t{span.repetitions - 1} * span.stride + span.run - 1;
  if (span.first >= low && last < low + limit) return {};
  return fall_here(Rule::kSpan, fmt::format("scratch slots {}..{}, expected {}..{} of replica {}",
                                            span.first, last, low, low + limit - 1, lane.replica));
}

// The span lies within the data.
Status StepChecker::check_extent(const Operand& operand) {
  if (is_message(operand)) return {};
  const ScheduleShape& shape = schedule_.shape;
  const CollectiveInfo& info = info_of(shape.collective);
  const bool input = operand.buffer == BufferKind::kInput;
  const BufferRule& held = input ? info.input : info.output;
  const Rank owner = operand.kind == OperandKind::kRemote ? operand.peer : site_.rank;
  if (held.extent == Extent::kWhole && !held.root_only) return {};
  for (std::uint32_t k = 0; k < operand.span.count(); ++k) {
    const std::uint32_t chunk = operand.span.at(k, shape.chunks);
    if (holds(shape, held, blocks_, owner, chunk)) continue;
    return fall_here(
        input ? Rule::kInputExtent : Rule::kOutputExtent,
        fmt::format("{} chunk {} of rank {}, expected {} of {}: the buffer of rank {} has no other",
                    name_of(operand.buffer), chunk, owner,
                    held.extent == Extent::kWhole ? "none" : "its own block", info.name, owner));
  }
  return {};
}

// Spans of one length. values.hpp checks that they name the right chunks.
Status StepChecker::check_counts(const Step& step) {
  const std::uint32_t count = step.destinations.front().span.count();
  bool sized = false;
  for (const auto* side : {&step.destinations, &step.sources}) {
    for (const Operand& operand : *side) {
      if (operand.span.count() != count)
        return fall_here(Rule::kSpanCount, fmt::format("{} chunks, expected {} as in the first "
                                                       "destination",
                                                       operand.span.count(), count));
      sized = sized || is_logical(operand);
    }
  }
  if (count == 0)
    return step.finish ? Status(fall_here(Rule::kFinish, "an empty step finishes nothing"))
                       : Status{};
  if (!sized)
    return fall_here(Rule::kChunkAgreement,
                     "scratch alone has no element count: no operand names the user's chunks");
  return {};
}

Status StepChecker::check_connections(const Step& step) {
  for (const auto* side : {&step.destinations, &step.sources}) {
    connections_.clear();
    for (const Operand& operand : *side)
      if (is_message(operand)) connections_.emplace_back(operand.peer, operand.tag);
    std::sort(connections_.begin(), connections_.end());
    const auto twice = std::adjacent_find(connections_.begin(), connections_.end());
    if (twice != connections_.end())
      return fall_here(Rule::kOwner, fmt::format("peer {} tag {} twice on one side of the step",
                                                 twice->first, twice->second));
  }
  return {};
}

void StepChecker::touch(const Lane& lane, const Operand& operand, bool write) {
  if (is_message(operand)) return;
  const Rank owner = operand.kind == OperandKind::kLocal ? site_.rank : operand.peer;
  for (std::uint32_t k = 0; k < operand.span.count(); ++k)
    touches_.push_back({owner, location_of(schedule_.shape, lane.replica, operand, k), k, write});
}

// The kernel works position by position, and a destination may equal a source of its own position
// only: anything else would make the result depend on how far the kernel has come.
Status StepChecker::check_overlap(const Lane& lane, const Step& step) {
  touches_.clear();
  for (const Operand& operand : step.destinations) touch(lane, operand, true);
  for (const Operand& operand : step.sources) touch(lane, operand, false);
  if (touches_.size() < 2) return {};
  const auto place = [](const Touch& t) { return std::tuple(t.owner, t.location, !t.write); };
  std::sort(touches_.begin(), touches_.end(),
            [&](const Touch& a, const Touch& b) { return place(a) < place(b); });
  const Touch* first = &touches_.front();  // of its location; the write if there is one
  for (std::size_t i = 1; i < touches_.size(); ++i) {
    const Touch& other = touches_[i];
    if (other.owner != first->owner || other.location != first->location) {
      first = &other;
      continue;
    }
    if (!first->write || (!other.write && other.position == first->position)) continue;
    return fall_here(
        Rule::kStepOverlap,
        fmt::format("{} of rank {} is {}", name_of_location(schedule_.shape, other.location),
                    other.owner,
                    other.write ? "written twice" : "read at one position and written at another"));
  }
  return {};
}

}  // namespace tutti::proof
