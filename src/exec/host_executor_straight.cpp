// SPDX-License-Identifier: Apache-2.0
// Small calls that repeat: the same steps, without what start() and fire() look up.
#include <algorithm>

#include "exec/host_executor.hpp"

namespace tutti {
namespace {

// Of a step, and of a line: more of them take longer than what is looked up.
constexpr std::size_t kMostOperands = 64, kMostMoves = 64, kMostPlaces = 8192;

}  // namespace

std::optional<StraightLine> HostExecutor::straighten(const Call& call) const {
  const bool simple = plan_.lanes.size() == 1 && plan_.remotes.empty() &&
                      plan_.shape.scratch_chunks == 0 && call.sizes == nullptr && !call.user_op;
  const std::size_t bytes_each = element_bytes(call.type);
  if (!simple || plan_.slices_for(call.count, bytes_each) != 1) return std::nullopt;
  StraightLine line;
  line.type = call.type;
  line.cut = plan_.cut_of(call.count, bytes_each, 1);
  for (const PlanStep& step : plan_.steps) {
    if (step.waits > 0 || !add_straight(line, step, bytes_each)) return std::nullopt;
  }
  return line;
}

bool HostExecutor::add_straight(StraightLine& line, const PlanStep& step,
                                std::size_t bytes_each) const {
  const std::span<const PlanOperand> operands = operands_of(step);
  if (operands.size() > kMostOperands) return false;
  StraightStep straight{.first_connection = static_cast<std::uint16_t>(line.connections.size()),
                        .first_move = static_cast<std::uint16_t>(line.moves.size())};
  for (const PlanOperand& operand : operands) {
    if (operand.kind == OperandKind::kLocal) continue;
    ++(operand.kind == OperandKind::kSend ? straight.sends : straight.receives);
    line.connections.push_back(operand.connection);
  }
  for (std::uint32_t k = 0; k < operands[0].span.count(); ++k) {
    const std::uint64_t bytes = line.cut.chunk(data_chunk(operands[0], k, 0)).count() * bytes_each;
    for (std::uint64_t done = 0, piece = 0; done < bytes; done += piece) {
      piece = std::min(bytes - done, segment_bytes() - straight.bytes % segment_bytes());
      line.moves.push_back({.first_place = static_cast<std::uint16_t>(line.places.size()),
                            .destinations = step.destinations,
                            .sources = step.sources,
                            .finish = step.finish,
                            .elements = static_cast<std::uint32_t>(piece / bytes_each)});
      for (const PlanOperand& operand : operands)
        line.places.push_back(place_of(line, operand, k, done, straight.bytes, bytes_each));
      straight.bytes += static_cast<std::uint32_t>(piece);
      if (++straight.moves > kMostMoves || line.places.size() > kMostPlaces) return false;
    }
  }
  line.steps.push_back(straight);
  return true;
}

// Of what lies `done` bytes behind the begin of chunk k, and `in_message` behind a message's.
StraightPlace HostExecutor::place_of(const StraightLine& line, const PlanOperand& operand,
                                     std::uint32_t k, std::uint64_t done, std::uint64_t in_message,
                                     std::size_t bytes_each) const {
  if (operand.kind != OperandKind::kLocal)
    return {.in = StraightPlace::In::kMessage,
            .connection = operand.connection,
            .offset = static_cast<std::uint32_t>(in_message / segment_bytes() * kCellBytes +
                                                 in_message % segment_bytes())};
  const std::uint64_t begin = line.cut.chunk(data_chunk(operand, k, 0)).begin * bytes_each + done;
  return {.in = operand.buffer == BufferKind::kOutput ? StraightPlace::In::kOutput
                                                      : StraightPlace::In::kInput,
          .offset = static_cast<std::uint32_t>(begin)};
}

bool HostExecutor::may_run(const StraightLine& line, const StraightStep& step,
                           std::uint64_t signature) {
  const std::uint16_t* connection = line.connections.data() + step.first_connection;
  for (const std::uint16_t* const last = connection + step.sends; connection != last; ++connection)
    if (!can_send(sends_[*connection])) return false;
  for (const std::uint16_t* const last = connection + step.receives; connection != last;
       ++connection) {
    Connection& from = recvs_[*connection];
    if (!can_recv(from) || recv_signature(from) != signature) return false;
  }
  return true;
}

void HostExecutor::run_step(const StraightLine& line, const StraightStep& step,
                            const StraightCall& call) {
  const StraightMove* move = line.moves.data() + step.first_move;
  for (const StraightMove* const last = move + step.moves; move != last; ++move) {
    const StraightPlace* place = line.places.data() + move->first_place;
    const auto address = [&](const std::vector<Connection>& connections) {
      const StraightPlace& here = *place++;
      if (here.in == StraightPlace::In::kInput)
        return reinterpret_cast<std::byte*>(call.input_base + here.offset);
      if (here.in == StraightPlace::In::kOutput)
        return reinterpret_cast<std::byte*>(call.output_base + here.offset);
      const Connection& c = connections[here.connection];
      return payload_of(c, c.slot).base + here.offset;
    };
    for (std::uint32_t d = 0; d < move->destinations; ++d)
      destination_pointers_[d] = address(sends_);
    for (std::uint32_t s = 0; s < move->sources; ++s) source_pointers_[s] = address(recvs_);
    call.kernel({.sources = source_pointers_.data(),
                 .source_count = move->sources,
                 .destinations = destination_pointers_.data(),
                 .destination_count = move->destinations,
                 .elements = move->elements,
                 .average_over = move->finish ? call.average_over : 0});
  }
  const std::uint16_t* connection = line.connections.data() + step.first_connection;
  for (const std::uint16_t* const last = connection + step.sends; connection != last; ++connection)
    commit(sends_[*connection], call.signature, step.bytes);
  for (const std::uint16_t* const last = connection + step.receives; connection != last;
       ++connection)
    release(recvs_[*connection]);
  traffic_.messages += step.sends;
  traffic_.payload_bytes += std::uint64_t{step.sends} * step.bytes;
}

// As if start() and advance() had come so far.
void HostExecutor::go_on_at(const StraightLine& line, std::size_t step, const StraightCall& call) {
  args_ = {.kernel = call.kernel,
           .average_over = call.average_over,
           .operation = call.operation,
           .signature = call.signature};
  sizes_ = nullptr;
  user_op_ = nullptr;
  input_base_ = call.input_base;
  output_base_ = call.output_base;
  type_ = line.type;
  element_bytes_ = element_bytes(line.type);
  cut_ = line.cut;
  lends_.clear();
  fault_ = Fault::kNone;
  fault_errno_ = 0;
  lanes_left_ = 1;
  states_[0] = {.step = static_cast<std::uint32_t>(step), .fired = step};
  enter_step(plan_.lanes[0], states_[0]);
}

}  // namespace tutti
