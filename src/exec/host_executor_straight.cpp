// SPDX-License-Identifier: Apache-2.0
// Small calls that repeat: the same steps, without what start() and fire() look up.
#include <algorithm>

#include "base/prefetch.hpp"
#include "exec/host_executor.hpp"
#include "exec/straight_moves.hpp"
#include "exec/waiter.hpp"

namespace tutti {
namespace {

// Of a step, and of a line: more of them take longer than what is looked up.
constexpr std::size_t kMostOperands = 64, kMostMoves = 64, kMostPlaces = 8192;

bool is_scratch(const PlanOperand& operand) {
  return operand.kind == OperandKind::kLocal && operand.buffer == BufferKind::kScratch;
}

}  // namespace

std::optional<StraightLine> HostExecutor::straighten(const OperationArgs& args, bool pumped) {
  const Call& call = *args.call;
  const bool simple = plan_.remotes.empty() && call.sizes == nullptr && !call.user_op;
  const std::size_t bytes_each = element_bytes(call.type);
  if (!simple || plan_.slices_for(call.count, bytes_each) != 1) return std::nullopt;
  StraightLine line;
  line.type = call.type;
  line.kernel = args.kernel;
  line.average_over = args.average_over;
  line.pumped = pumped;
  line.cut = plan_.cut_of(call.count, bytes_each, 1);
  line.room_bytes = line.cut.max_slice_count() * bytes_each;
  line.short_messages = plan_.has_short_messages(line.cut, bytes_each);
  std::uint32_t longest = 0;
  for (const PlanLane& lane : plan_.lanes) longest = std::max(longest, lane.steps);
  line.one_lane = std::ranges::count(plan_.lanes, 0U, &PlanLane::replica) == 1;
  for (std::uint32_t turn = 0; turn < longest; ++turn)
    for (std::size_t i = 0; i < plan_.lanes.size(); ++i) {
      const PlanLane& lane = plan_.lanes[i];
      if (lane.replica > 0 || turn >= lane.steps) continue;
      if (!add_straight(line, plan_.steps[lane.first_step + turn], call)) return std::nullopt;
      line.steps.back().lane = static_cast<std::uint16_t>(i);
    }
  // Over a pumped connection a peer's answer need not have brought its credits, and a list of
  // operations on cells does not pump.
  if (!pumped) {
    note_answered(line);
    note_cells(line);
  }
  bases_.resize(std::max(bases_.size(), StraightPlace::kFirstMessage + line.ends.size()));
  return line;
}

void HostExecutor::note_answered(StraightLine& line) {
  std::vector<Rank> heard;
  for (const StraightStep& step : line.steps)
    for (std::uint32_t i = step.sends; i < std::uint32_t{step.sends} + step.receives; ++i)
      heard.push_back(
          plan_.recvs[static_cast<std::size_t>(line.ends[step.first_end + i] - recvs_.data())]
              .source);
  for (std::size_t i = 0; i < sends_.size(); ++i)
    if (std::ranges::find(heard, plan_.sends[i].destination) != heard.end())
      line.answered.push_back(&sends_[i]);
}

bool HostExecutor::add_straight(StraightLine& line, const PlanStep& step, const Call& call) {
  const std::span<const PlanOperand> operands = operands_of(step);
  if (operands.size() > kMostOperands || step.waits > 0) return false;
  const std::size_t bytes_each = element_bytes(call.type);
  StraightStep straight{.first_end = static_cast<std::uint16_t>(line.ends.size()),
                        .first_move = static_cast<std::uint16_t>(line.moves.size())};
  const bool averages = step.finish && call.info().reduces() && call.op == ReduceOp::kAvg;
  const auto sized = std::ranges::find_if_not(operands, is_scratch);
  for (std::uint32_t k = 0; k < operands[0].span.count(); ++k) {
    const std::uint64_t bytes = sized == operands.end()
                                    ? line.room_bytes
                                    : line.cut.chunk(data_chunk(*sized, k, 0)).count() * bytes_each;
    for (std::uint64_t done = 0, piece = 0; done < bytes; done += piece) {
      piece = std::min(bytes - done, segment_bytes() - straight.bytes % segment_bytes());
      line.moves.push_back({.first_place = static_cast<std::uint16_t>(line.places.size()),
                            .destinations = step.destinations,
                            .sources = step.sources,
                            .copies = step.sources == 1 && !averages,
                            .finish = step.finish,
                            .elements = static_cast<std::uint32_t>(piece / bytes_each),
                            .bytes = static_cast<std::uint32_t>(piece)});
      add_places(line, operands, k, done, straight.bytes);
      straight.bytes += static_cast<std::uint32_t>(piece);
      if (++straight.moves > kMostMoves || line.places.size() > kMostPlaces) return false;
    }
  }
  for (const PlanOperand& operand : operands) {
    if (operand.kind == OperandKind::kLocal) continue;
    const bool send = operand.kind == OperandKind::kSend;
    ++(send ? straight.sends : straight.receives);
    line.ends.push_back(&(send ? sends_ : recvs_)[operand.connection]);
  }
  // Those the ordinary way sends from the user's memory and receives there.
  if (line.pumped && straight.bytes >= std::min(kLeastLentBytes, kLeastOfferedBytes)) return false;
  straight.gauged = straight.bytes >= StoreGauge::kLeastBytes && fills_shared_slots(step);
  straight.plan_step = static_cast<std::uint32_t>(&step - plan_.steps.data());
  line.messages += straight.sends;
  line.payload_bytes += std::uint64_t{straight.sends} * straight.bytes;
  line.steps.push_back(straight);
  return line.ends.size() <= kMostPlaces;
}

// Of what lies `done` bytes behind the begin of chunk k, and `in_message` behind a message's. The
// step's messages come next in the line.
void HostExecutor::add_places(StraightLine& line, std::span<const PlanOperand> operands,
                              std::uint32_t k, std::uint64_t done, std::uint64_t in_message) const {
  std::size_t message = StraightPlace::kFirstMessage + line.ends.size();
  for (const PlanOperand& operand : operands) {
    StraightPlace place;
    std::uint64_t begin = done;
    if (operand.kind != OperandKind::kLocal) {
      place.base = static_cast<std::uint16_t>(message++);
      begin = in_message / segment_bytes() * kCellBytes + in_message % segment_bytes();
    } else if (is_scratch(operand)) {
      const std::uint32_t rooms = plan_.shape.scratch_chunks * plan_.shape.replicas;
      place.base = StraightPlace::kScratch;
      begin += operand.span.at(k, rooms) * line.room_bytes;
    } else {
      const std::uint32_t chunk = data_chunk(operand, k, 0);
      place.base =
          operand.buffer == BufferKind::kOutput ? StraightPlace::kOutput : StraightPlace::kInput;
      begin += line.cut.chunk(chunk).begin * element_bytes(line.type);
    }
    place.offset = static_cast<std::uint32_t>(begin);
    line.places.push_back(place);
  }
}

bool HostExecutor::run_steps(const StraightLine& line, const StraightCall& call,
                             std::uint32_t most_looks) {
  call.hooks.enter(call);
  // Before they begin: what they sent until the last operation began has been read.
  for (Connection* const end : line.answered)
    end->state->seen = std::max(end->state->seen, end->first_message);
  begin(call.operation, line.short_messages);
  bases_[StraightPlace::kInput] = reinterpret_cast<std::byte*>(call.input_base);
  bases_[StraightPlace::kOutput] = reinterpret_cast<std::byte*>(call.output_base);
  bases_[StraightPlace::kScratch] = scratch_.data();
  const std::size_t steps = line.steps.size();
  // Until ready(). False: it gave up, and advance() goes on at step `from`.
  const auto wait = [&](auto&& ready, std::size_t from, std::uint32_t most) {
    for (std::uint32_t looks = 0; !ready(); ++looks) {
      if (looks == most || (line.pumped && !call.hooks.pump(call, from == steps))) [[unlikely]] {
        go_on_at(line, from, call);
        return false;
      }
      if (!line.pumped) Waiter::relax();
    }
    return true;
  };
  // What is to be sent leaves by the first look. While one lane waits for a network, others may
  // have something to send: advance() asks all of them.
  const std::uint32_t pumped_looks = std::max(most_looks, 1U);
  const std::uint32_t most = !line.pumped ? most_looks : line.one_lane ? pumped_looks : 0;
  for (std::size_t i = 0; i < steps; ++i) {
    const StraightStep& step = line.steps[i];
    if (!wait([&] { return may_run(line, step, call.signature); }, i, most)) return false;
    run_step(line, step, call.signature);
  }
  if (line.pumped && !wait([&] { return call.hooks.flushed(call); }, steps, pumped_looks))
    return false;
  traffic_.messages += line.messages;
  traffic_.payload_bytes += line.payload_bytes;
  if (!line.answered.empty()) fetch_cells(line);
  return true;
}

void HostExecutor::run_step(const StraightLine& line, const StraightStep& step,
                            std::uint64_t signature) {
  if (step.gauged) [[unlikely]]
    run_gauged(line, step);
  else
    run_moves<false>(line, step);
  Connection* const* end = line.ends.data() + step.first_end;
  for (Connection* const* const last = end + step.sends; end != last; ++end)
    commit(**end, signature, step.bytes);
  for (Connection* const* const last = end + step.receives; end != last; ++end) release(**end);
}

// The next operation's cells, as CellOp::kFetch does. (Of slots, whose number is in a line of its
// own, it changed nothing or took longer.)
void HostExecutor::fetch_cells(const StraightLine& line) {
  for (const StraightStep& step : line.steps) {
    Connection* const* end = line.ends.data() + step.first_end;
    for (Connection* const* const last = end + step.sends; end != last; ++end) {
      if ((*end)->protocol != Protocol::kFlagged) continue;
      const Cell* cell = cell_of(**end, (*end)->slot);
      for (std::uint64_t at = 0; at < step.bytes; at += kCellPayloadBytes, ++cell)
        prefetch_lines_to_write(
            reinterpret_cast<const std::byte*>(cell),
            lines_of(kCellHeaderBytes +
                     std::min<std::uint64_t>(step.bytes - at, kCellPayloadBytes)));
    }
  }
}

// Are its slots free, and its messages there? Says where their payloads lie.
bool HostExecutor::may_run(const StraightLine& line, const StraightStep& step,
                           std::uint64_t signature) {
  Connection* const* end = line.ends.data() + step.first_end;
  std::byte** base = bases_.data() + StraightPlace::kFirstMessage + step.first_end;
  for (Connection* const* const last = end + step.sends; end != last; ++end) {
    if (!can_send(**end)) return false;
    *base++ = send_slot(**end).base;
  }
  for (Connection* const* const last = end + step.receives; end != last; ++end) {
    if (!can_recv(**end) || recv_signature(**end) != signature) return false;
    *base++ = recv_slot(**end).base;
  }
  return true;
}

void HostExecutor::run_gauged(const StraightLine& line, const StraightStep& step) {
  store_gauged(gauges_[step.plan_step], step.bytes, [&](StoreGauge::Way way) {
    if (way == StoreGauge::Way::kThrough) return run_moves<false>(line, step);
    run_moves<true>(line, step);
    traffic_.around_bytes += std::uint64_t{step.sends} * step.bytes;
  });
}

// As if start() and advance() had come so far.
void HostExecutor::go_on_at(const StraightLine& line, std::size_t step, const StraightCall& call) {
  args_ = {.kernel = line.kernel,
           .average_over = line.average_over,
           .operation = call.operation,
           .signature = call.signature};
  sizes_ = nullptr;
  user_op_ = nullptr;
  input_base_ = call.input_base;
  output_base_ = call.output_base;
  type_ = line.type;
  element_bytes_ = element_bytes(line.type);
  cut_ = line.cut;
  room_bytes_ = line.room_bytes;
  lends_.clear();
  fault_ = Fault::kNone;
  fault_errno_ = 0;
  lanes_left_ = 0;
  for (std::size_t i = 0; i < states_.size(); ++i) states_[i] = {.slice = plan_.lanes[i].replica};
  for (std::size_t s = 0; s < step; ++s) {
    ++states_[line.steps[s].lane].fired;
    traffic_.messages += line.steps[s].sends;
    traffic_.payload_bytes += std::uint64_t{line.steps[s].sends} * line.steps[s].bytes;
  }
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const PlanLane& lane = plan_.lanes[i];
    LaneState& state = states_[i];
    if (state.slice > 0) continue;
    if (state.fired == lane.steps) {
      state.slice += plan_.shape.replicas;
      continue;
    }
    ++lanes_left_;
    state.step = static_cast<std::uint32_t>(state.fired);
    enter_step(lane, state);
  }
}

}  // namespace tutti
