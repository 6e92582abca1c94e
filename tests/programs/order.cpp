// SPDX-License-Identifier: Apache-2.0
#include "order.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "values.hpp"

namespace tutti::programs {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

std::size_t index(int number) { return static_cast<std::size_t>(number); }

bool overlap(const Span& a, const Span& b) {
  if (a.buffer != b.buffer || a.count == 0 || b.count == 0) return false;
  const auto end = [](const Span& span) {
    return span.count == SIZE_MAX ? SIZE_MAX : span.first + span.count;
  };
  return a.first < end(b) && b.first < end(a);
}

}  // namespace

Order::Order(const Program& program)
    : program_{program.ranks, program.streams, program.buffers, {}}, parts_(1), destroyed_(1) {
  parts_[0].emplace_back();
  for (int rank = 0; rank < program.ranks; ++rank) parts_[0][0].push_back(rank);
  known_.resize(index(program.ranks));
  for (Known& known : known_) {
    known.streams.resize(index(program.streams));
    known.events.resize(kEvents);
    known.comms.resize(1);
  }
  for (const tuttiDataType_t type : program.buffers) values_.push_back({fill_bound(type)});
}

const Parts& Order::parts(int comm) const {
  static const Parts none;
  return comm >= 0 && index(comm) < parts_.size() ? parts_[index(comm)] : none;
}

bool Order::is_there(int comm) const { return !parts(comm).empty() && !destroyed_[index(comm)]; }

bool Order::is_legal(const Step& step) const {
  const int buffers = static_cast<int>(program_.buffers.size());
  if (step.stream < kNoStream || step.stream >= program_.streams || step.stagger < 0) return false;
  if (uses_comm(step.kind) && !is_there(step.comm)) return false;
  if (step.kind == Kind::kSplit &&
      (step.made <= 0 || step.made >= kMostComms || !parts(step.made).empty()))
    return false;
  if (step.kind == Kind::kDestroy && step.comm == 0) return false;
  if (step.event < 0 || step.event >= kEvents) return false;
  if (step.in < 0 || step.in >= buffers || step.out < 0 || step.out >= buffers) return false;
  const tuttiDataType_t type = program_.buffers[index(step.out)];
  if (is_call(step.kind) && program_.buffers[index(step.in)] != type) return false;
  if (reduces(step.kind) && !has_operation(type, step.op)) return false;
  const bool on_stream = step.kind == Kind::kRecord || step.kind == Kind::kWait ||
                         step.kind == Kind::kSynchronizeStream || step.kind == Kind::kQuery;
  if (on_stream && step.stream == kNoStream) return false;
  // Of a floating type's mean among ranks that are no power of two the bits depend on how it is
  // divided.
  if (reduces(step.kind) && step.op == tuttiAvg && is_float(type))
    for (const Part& part : parts(step.comm))
      if ((part.size() & (part.size() - 1)) != 0) return false;
  return true;
}

bool Order::is_legal(std::span<const Step> unit) const {
  if (unit.empty() || program_.steps.size() + unit.size() > kMostSteps) return false;
  if (!std::ranges::all_of(unit, [&](const Step& step) { return is_legal(step); })) return false;
  if (unit.size() > 1 || unit[0].group != 0)
    for (const Step& step : unit)
      if (!is_call(step.kind) || step.group != unit[0].group) return false;
  for (int rank = 0; rank < program_.ranks; ++rank)
    for (std::size_t i = 0; i < unit.size(); ++i) {
      const Places own = places_of(program_, unit[i], part_of(parts(unit[i].comm), rank), rank);
      // Only equal places are legal within one call, and places_of makes those of calls in place.
      const bool in_place = (unit[i].in_place >> rank & 1u) != 0 || unit[i].kind == Kind::kBcast;
      const bool moves =
          unit[i].kind == Kind::kTransfer || unit[i].kind == Kind::kAllToAllV || !in_place;
      if (is_call(unit[i].kind) && own.reads && own.writes && moves &&
          overlap(own.input, own.output))
        return false;
      for (std::size_t j = 0; j < i; ++j)
        if (conflicts(unit[i], unit[j], rank)) return false;
    }
  return true;
}

bool Order::conflicts(const Step& a, const Step& b, int rank) const {
  const Places pa = places_of(program_, a, part_of(parts(a.comm), rank), rank);
  const Places pb = places_of(program_, b, part_of(parts(b.comm), rank), rank);
  return (pa.writes && ((pb.writes && overlap(pa.output, pb.output)) ||
                        (pb.reads && overlap(pa.output, pb.input)))) ||
         (pa.reads && pb.writes && overlap(pa.input, pb.output));
}

// A call that moves nothing at a rank may return there without having waited for anything.
bool Order::surely_runs(const Step& step, int rank) const {
  if (!is_call(step.kind)) return true;
  const Part* const part = part_of(parts(step.comm), rank);
  if (part == nullptr || is_v_form(step.kind)) return false;
  if (step.kind == Kind::kBarrier) return true;
  const Places places = places_of(program_, step, part, rank);
  return step.count > 0 && (places.reads || places.writes || step.kind != Kind::kTransfer);
}

Order::Set Order::before(std::span<const Step> unit, const Step& step, int rank) const {
  const Known& known = known_[index(rank)];
  Set before = known.thread;
  const auto add_stream = [&](const Step& other) {
    const int stream = stream_of(program_, other, rank);
    if (stream != kNoStream) before |= known.streams[index(stream)];
  };
  if (!is_call(step.kind)) {
    add_stream(step);
    return before;
  }
  before |= known.comms[index(step.comm)];
  for (const Step& other : unit)
    if (other.comm == step.comm && surely_runs(other, rank)) add_stream(other);
  return before;
}

std::optional<int> Order::wants_fill(const Step& step) const {
  const tuttiDataType_t type = program_.buffers[index(step.out)];
  if (!is_float(type)) return std::nullopt;
  const double limit = exact_limit(type);
  if (step.kind == Kind::kAdd && values_[index(step.out)].bound + 1 > limit) return step.out;
  if (!reduces(step.kind) || step.op == tuttiMax || step.op == tuttiMin) return std::nullopt;
  std::size_t ranks = 0;
  for (const Part& part : parts(step.comm)) ranks = std::max(ranks, part.size());
  const auto size = static_cast<double>(ranks);
  for (const int buffer : {step.in, step.out}) {
    // A call that is not in place may still have both in one buffer.
    if (buffer != step.in && step.in_place == 0) continue;
    const auto [bound, has_zero] = values_[index(buffer)];
    const bool is_exact =
        step.op == tuttiProd ? !has_zero && std::pow(bound, size) <= limit : bound * size <= limit;
    if (!is_exact) return buffer;
  }
  return std::nullopt;
}

bool Order::order_after_conflicts(std::span<const Step> unit) {
  for (const Step& step : unit)
    for (int rank = 0; rank < program_.ranks; ++rank) {
      for (std::size_t i = program_.steps.size(); i-- > 0;) {
        const Step earlier = program_.steps[i];
        if (!conflicts(step, earlier, rank) || before(unit, step, rank)[i]) continue;
        if (earlier.stream == kNoStream) return false;  // has ended; or its communicator has
        Step ends{.kind = Kind::kSynchronizeStream,
                  .stream = earlier.stream,
                  .stagger = earlier.stagger,
                  .derived = true};
        const bool waits_in_thread = step.stream == kNoStream || derived_++ % 4 == 3;
        if (!waits_in_thread || derived_ % 2 == 0) {
          ends.kind = Kind::kRecord;
          ends.event = static_cast<int>(derived_ % kEvents);
          if (!append({&ends, 1})) return false;
          ends.kind = waits_in_thread ? Kind::kSynchronizeEvent : Kind::kWait;
          ends.stream = step.stream;
          ends.stagger = step.stagger;
        }
        if (!append({&ends, 1})) return false;
      }
    }
  return true;
}

bool Order::add(std::span<const Step> unit) {
  if (!is_legal(unit)) return false;
  for (const Step& step : unit)
    while (const std::optional<int> buffer = wants_fill(step)) {
      const Step fill{.kind = Kind::kFill,
                      .stream = step.stream,
                      .stagger = step.stagger,
                      .out = *buffer,
                      .salt = 1000 + derived_++,
                      .derived = true};
      if (!order_after_conflicts({&fill, 1}) || !append({&fill, 1})) return false;
      if (wants_fill(step) == buffer) return false;  // too many ranks for the type
    }
  return order_after_conflicts(unit) && append(unit);
}

bool Order::append(std::span<const Step> unit) {
  const std::size_t first = program_.steps.size();
  if (first + unit.size() > kMostSteps) return false;
  for (int rank = 0; rank < program_.ranks; ++rank) note_work(unit, rank, first);
  for (const Step& step : unit) {
    for (int rank = 0; rank < program_.ranks; ++rank) note_order(step, rank);
    note_values(step);
    if (step.kind == Kind::kSplit) {
      const Parts made = divide(parts(step.comm), static_cast<Division>(step.peer));
      if (parts_.size() <= index(step.made)) parts_.resize(index(step.made) + 1);
      parts_[index(step.made)] = made;
      destroyed_.resize(parts_.size());
      for (Known& known : known_) known.comms.resize(parts_.size());
    }
    if (step.kind == Kind::kDestroy) destroyed_[index(step.comm)] = true;
    program_.steps.push_back(step);
  }
  // The parts of a communicator that is gone stay: conflicts() looks at its earlier calls.
  return true;
}

void Order::note_work(std::span<const Step> unit, int rank, std::size_t first) {
  if (!is_call(unit[0].kind) && !is_function(unit[0].kind)) return;
  Known& known = known_[index(rank)];
  std::vector<Set> ended;  // when each step has
  for (std::size_t i = 0; i < unit.size(); ++i) {
    ended.push_back(surely_runs(unit[i], rank) ? before(unit, unit[i], rank) : Set());
    ended.back().set(first + i);
  }
  for (std::size_t i = 0; i < unit.size(); ++i) {
    const bool takes_part = !is_call(unit[i].kind) || part_of(parts(unit[i].comm), rank) != nullptr;
    const int stream = stream_of(program_, unit[i], rank);
    if (!takes_part) continue;
    if (is_call(unit[i].kind)) known.comms[index(unit[i].comm)] |= ended[i];
    if (stream != kNoStream) known.streams[index(stream)] |= ended[i];
  }
  // A call in the calling thread ends with all of its communicator.
  for (const Step& step : unit) {
    if (stream_of(program_, step, rank) != kNoStream) continue;
    const auto i = static_cast<std::size_t>(&step - unit.data());
    known.thread |= ended[i];
    if (is_call(step.kind) && surely_runs(step, rank))
      known.thread |= known.comms[index(step.comm)];
  }
}

void Order::note_order(const Step& step, int rank) {
  Known& known = known_[index(rank)];
  const int stream = stream_of(program_, step, rank);
  switch (step.kind) {
    case Kind::kRecord:
      known.events[index(step.event)] = known.streams[index(stream)] | known.thread;
      return;
    case Kind::kWait:
      known.streams[index(stream)] |= known.events[index(step.event)];
      return;
    case Kind::kSynchronizeEvent:
      known.thread |= known.events[index(step.event)];
      return;
    case Kind::kSynchronizeStream:
      known.thread |= known.streams[index(stream)];
      return;
    case Kind::kSplit:
    case Kind::kDestroy:
    case Kind::kAlgorithm:
      known.thread |= known.comms[index(step.comm)];
      return;
    default:
      return;
  }
}

void Order::note_values(const Step& step) {
  if (step.kind == Kind::kFill)
    values_[index(step.out)] = {fill_bound(program_.buffers[index(step.out)])};
  if (step.kind == Kind::kAdd) {
    values_[index(step.out)].bound += 1;
    values_[index(step.out)].has_zero = true;
  }
  if (!is_call(step.kind) || step.kind == Kind::kBarrier) return;
  Buffer result = values_[index(step.in)];
  if (step.in_place != 0 || step.kind == Kind::kBcast) {
    result.bound = std::max(result.bound, values_[index(step.out)].bound);
    result.has_zero |= values_[index(step.out)].has_zero;
  }
  std::size_t ranks = 0;
  for (const Part& part : parts(step.comm)) ranks = std::max(ranks, part.size());
  if (reduces(step.kind)) {
    if (step.op == tuttiSum) result = {result.bound * static_cast<double>(ranks), true};
    if (step.op == tuttiProd) result.bound = std::pow(result.bound, static_cast<double>(ranks));
    if (step.op == tuttiAvg && ranks > 1) result = {kUnknown, true};
  }
  Buffer& output = values_[index(step.out)];
  output = {std::max(output.bound, result.bound), output.has_zero || result.has_zero};
}

std::optional<Program> complete(const Program& program) {
  std::vector<Step> steps;
  for (const Step& step : program.steps)
    if (!step.derived) steps.push_back(step);
  Order order(program);
  for (std::size_t first = 0, end = 0; first < steps.size(); first = end) {
    end = end_of_unit(steps, first);
    if (!order.add(std::span(steps).subspan(first, end - first))) return std::nullopt;
  }
  return order.program();
}

}  // namespace tutti::programs
