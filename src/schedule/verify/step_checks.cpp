#include "schedule/verify/step_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace tutti::proof {

std::uint32_t location_of(const ScheduleShape& shape, std::uint32_t replica, const Operand& operand,
                          std::uint32_t k) {
  if (operand.buffer != BufferKind::kScratch) return operand.span.at(k, shape.chunks);
  const std::uint32_t rooms = shape.scratch_chunks * shape.replicas;
  return shape.chunks + operand.span.at(k, rooms) - replica * shape.scratch_chunks;
}

Status check_shape(const Schedule& schedule) {
  const ScheduleShape& shape = schedule.shape;
  const auto wrong = [](const char* what, auto found, const char* expected) {
    return fall(Rule::kShape, fmt::format("{} is {}, expected {}", what, found, expected));
  };
  if (shape.ranks < 1) return wrong("ranks", shape.ranks, "at least 1");
  if (schedule.ranks.size() != static_cast<std::size_t>(shape.ranks))
    return fall(Rule::kShape,
                fmt::format("{} programs for {} ranks", schedule.ranks.size(), shape.ranks));
  if (shape.root < 0 || shape.root >= shape.ranks) return wrong("root", shape.root, "a rank");
  if (shape.chunks < 1) return wrong("chunks", shape.chunks, "at least 1");
  if (shape.replicas < 1) return wrong("replicas", shape.replicas, "at least 1");
  if (shape.scratch_versions < 1 || shape.scratch_versions > kMaxVersions)
    return wrong("scratch_versions", shape.scratch_versions, "1..64");
  if (shape.tags < 1) return wrong("tags", shape.tags, "at least 1");
  constexpr std::uint64_t kTagLimit = std::uint64_t{1} << 16;
  if (std::uint64_t{shape.tags} * shape.replicas > kTagLimit)
    return wrong("tags", shape.tags, "at most 65536 over all replicas");
  const std::uint64_t ranks = static_cast<std::uint64_t>(shape.ranks);
  // Each factor first, so that the product cannot wrap.
  if (shape.chunks > kMaxLocations || shape.scratch_chunks > kMaxLocations / shape.replicas ||
      std::uint64_t{shape.chunks} + shape.scratch_chunks > kMaxLocations / ranks)
    return fall(Rule::kShape,
                "more chunks and rooms than the verifier takes (2^28 over all ranks)");
  return {};
}

Status StepChecker::check(const Site& site, const Lane& lane, const Step& step) {
  site_ = site;
  if (step.destinations.empty()) return fall_here(Rule::kOperands, "no destination");
  if (step.sources.empty()) return fall_here(Rule::kOperands, "no source");
  for (const Operand& operand : step.destinations) TUTTI_TRY(check_operand(lane, operand, true));
  for (const Operand& operand : step.sources) TUTTI_TRY(check_operand(lane, operand, false));
  TUTTI_TRY(check_agreement(step));
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
    if (span.first < limit) return {};
    return fall_here(Rule::kSpan, fmt::format("chunk {}, expected 0..{}", span.first, limit - 1));
  }
  const std::uint64_t low = std::uint64_t{lane.replica} * shape.scratch_chunks;
  const std::uint64_t last =
      span.first + std::uint64_t{span.repetitions - 1} * span.stride + span.run - 1;
  if (span.first >= low && last < low + limit) return {};
  return fall_here(Rule::kSpan, fmt::format("scratch rooms {}..{}, expected {}..{} of replica {}",
                                            span.first, last, low, low + limit - 1, lane.replica));
}

Status StepChecker::check_agreement(const Step& step) {
  const std::uint32_t count = step.destinations.front().span.count();
  const Operand* logical = nullptr;
  for (const auto* side : {&step.destinations, &step.sources}) {
    for (const Operand& operand : *side) {
      if (operand.span.count() != count)
        return fall_here(Rule::kSpanCount, fmt::format("{} chunks, expected {} as in the first "
                                                       "destination",
                                                       operand.span.count(), count));
      if (!is_logical(operand)) continue;
      if (logical == nullptr) logical = &operand;
      if (operand.span == logical->span) continue;
      for (std::uint32_t k = 0; k < count; ++k) {
        const std::uint32_t found = operand.span.at(k, schedule_.shape.chunks);
        const std::uint32_t expected = logical->span.at(k, schedule_.shape.chunks);
        if (found != expected)
          return fall_here(Rule::kChunkAgreement,
                           fmt::format("chunk {} at position {}, expected {} as in the step's "
                                       "other operands",
                                       found, k, expected));
      }
    }
  }
  if (count == 0)
    return step.finish ? Status(fall_here(Rule::kFinish, "an empty step finishes nothing"))
                       : Status{};
  if (logical == nullptr)
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
    const std::uint32_t chunks = schedule_.shape.chunks;
    const bool room = other.location >= chunks;
    return fall_here(
        Rule::kStepOverlap,
        fmt::format("{} {} of rank {} is {} (in place)", room ? "room" : "chunk",
                    room ? other.location - chunks : other.location, other.owner,
                    other.write ? "written twice" : "read at one position and written at another"));
  }
  return {};
}

}  // namespace tutti::proof
