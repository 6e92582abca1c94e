// SPDX-License-Identifier: Apache-2.0
#include "exec/host_executor.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <span>
#include <utility>

#include "schedule/block_map.hpp"
#include "transports/connection_ops.hpp"

namespace tutti {
namespace {

// The bytes that a step reads from all its peers together before it reduces, so that they stay in a
// core's own cache. Measured between near cores, two ranks: 64 KiB takes 5 % longer, 256 KiB 3 %
// less.
constexpr std::uint64_t kBounceBytes = 128 << 10;
constexpr std::uint64_t kLeastPieceBytes = 4096;

// Sizes of steps in peers' memory that have a gauge of their own: 4 KiB, 8 KiB, ... 1 MiB.
constexpr std::size_t kGaugedOctaves = 9;

}  // namespace

HostExecutor::HostExecutor(const Plan& plan, std::vector<Connection> sends,
                           std::vector<Connection> recvs, DirectAccess direct)
    : plan_(plan),
      sends_(std::move(sends)),
      recvs_(std::move(recvs)),
      direct_(std::move(direct)),
      states_(plan.lanes.size()),
      gauges_(plan.steps.size() * (plan.remotes.empty() ? 1 : 2 * kGaugedOctaves),
              StoreGauge(plan.remotes.empty() ? plan.options.slots : 0)) {
  std::size_t sources = 0, destinations = 0;
  for (const PlanStep& step : plan.steps) {
    sources = std::max<std::size_t>(sources, step.sources);
    destinations = std::max<std::size_t>(destinations, step.destinations);
  }
  std::size_t most_lends = 0;
  for (const Connection& connection : sends_)
    if (takes_lent(connection)) most_lends += connection.slots;
  lends_.reserve(most_lends);
  source_pointers_.resize(sources);
  destination_pointers_.resize(destinations);
  const std::uint64_t peers = direct_.peers.size();
  if (peers == 0) return;
  piece_bytes_ =
      std::max(kBounceBytes / peers / kLeastPieceBytes, std::uint64_t{1}) * kLeastPieceBytes;
  entered_.resize(peers);
  all_mapped_ =
      std::ranges::all_of(direct_.peers, [](const PeerMemory& peer) { return peer.mapped(); });
  if (!all_mapped_) bounce_.resize(sources * piece_bytes_ / sizeof(Line));
}

Status HostExecutor::start(const OperationArgs& args) {
  if (plan_.seal == Seal::kNone)
    return make_error(
        Code::kInternalError,
        "the plan was not verified, so it does not run; this is a bug in Tutti, please report it");
  const Call& call = *args.call;
  args_ = args;
  args_.call = nullptr;
  sizes_ = call.sizes.get();
  user_op_ = call.user_op ? &*call.user_op : nullptr;
  input_base_ = call.input_base(plan_.rank);
  output_base_ = call.output_base(plan_.rank);
  type_ = call.type;
  element_bytes_ = element_bytes(call.type);
  const std::uint64_t slices = plan_.slices_for(call.count, element_bytes_);
  if (slices > kMaxSlices)
    return make_error(Code::kInvalidArgument,
                      "the call needs more slices than a plan can run; raise TUTTI_SLOT_BYTES and "
                      "TUTTI_ARENA_BYTES");
  cut_ = plan_.cut_of(call.count, element_bytes_, slices);
  if (plan_.shape.scratch_chunks > 0) {
    room_bytes_ = cut_.max_slice_count() * element_bytes_;
    const std::uint64_t rooms = std::uint64_t{plan_.shape.scratch_chunks} * plan_.shape.replicas *
                                plan_.shape.scratch_versions;
    if (scratch_.size() < rooms * room_bytes_) scratch_.resize(rooms * room_bytes_);
  }
  if (!plan_.remotes.empty()) {
    if (direct_.own == nullptr || direct_.peers.size() != plan_.remotes.size())
      return make_error(
          Code::kInternalError,
          "a plan that works in peers' memory got none; this is a bug in Tutti, please report it");
    if (plan_.stores && !all_mapped_ && !args.in_windows)
      return make_error(Code::kInternalError,
                        "a plan stores into memory of other processes outside of windows; this is "
                        "a bug in Tutti, please report it");
    direct_.own->publish(args.operation, input_base_, output_base_);
  }
  begin(args.operation, sizes_ == nullptr && plan_.has_short_messages(cut_, element_bytes_));
  lanes_left_ = 0;
  lends_.clear();
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const PlanLane& lane = plan_.lanes[i];
    states_[i] = {.slice = lane.replica};
    if (lane.replica >= cut_.slices) continue;
    ++lanes_left_;
    enter_step(lane, states_[i]);
  }
  fault_ = Fault::kNone;
  fault_errno_ = 0;
  return {};
}

void HostExecutor::use_short_messages(bool yes) {
  for (Connection& connection : sends_) use_short_cells(connection, yes);
  for (Connection& connection : recvs_) use_short_cells(connection, yes);
  short_messages_ = yes;
}

void HostExecutor::begin(std::uint64_t operation, bool short_messages) {
  if (short_messages != short_messages_) use_short_messages(short_messages);
  for (Connection& connection : sends_) begin_operation(connection, operation);
  for (Connection& connection : recvs_) begin_operation(connection, operation);
}

bool HostExecutor::advance() {
  blocked_on_ = kNoRank;
  bool fired = false;
  std::erase_if(lends_, taken);
  for (std::size_t lane = 0; lane < states_.size() && fault_ == Fault::kNone; ++lane)
    fired |= advance_lane(lane);
  if (blocked_on_ == kNoRank && lanes_left_ == 0 && !lends_.empty())
    blocked_on_ = lends_.front().peer;
  return fired;
}

Rank HostExecutor::blocked_on_one(const std::function<bool(Rank)>& wanted) {
  const Rank first = std::exchange(blocked_on_, kNoRank);
  const std::size_t first_lane = blocked_lane_;
  for (std::size_t i = 0; i < states_.size() && fault_ == Fault::kNone; ++i) {
    if (states_[i].slice >= cut_.slices) continue;
    static_cast<void>(ready(states_[i], plan_.steps[plan_.lanes[i].first_step + states_[i].step]));
    if (blocked_on_ != kNoRank && wanted(blocked_on_)) return blocked_on_;
    blocked_on_ = kNoRank;
  }
  blocked_on_ = first;
  blocked_lane_ = first_lane;
  return kNoRank;
}

HostExecutor::Place HostExecutor::blocked_at() const {
  const LaneState& state = states_[blocked_lane_];
  return {static_cast<std::uint32_t>(blocked_lane_), state.step, state.slice};
}

bool HostExecutor::advance_lane(std::size_t index) {
  const PlanLane& lane = plan_.lanes[index];
  LaneState& state = states_[index];
  bool fired = false;
  while (state.slice < cut_.slices) {
    const PlanStep& step = plan_.steps[lane.first_step + state.step];
    if (!ready(state, step)) return fired;
    if (!fire(step, state)) return fired;
    complete_messages(step, state.bytes);
    next_step(lane, state);
    fired = true;
  }
  return fired;
}

void HostExecutor::enter_step(const PlanLane& lane, LaneState& state) {
  const PlanStep& step = plan_.steps[lane.first_step + state.step];
  state.bytes = 0;
  for (std::uint32_t k = 0; k < plan_.operands[step.first_operand].span.count(); ++k)
    state.bytes += chunk_bytes(step, k, state.slice);
}

void HostExecutor::next_step(const PlanLane& lane, LaneState& state) {
  ++state.fired;
  if (++state.step == lane.steps) {
    state.step = 0;
    state.slice += plan_.shape.replicas;
    if (state.slice >= cut_.slices) {
      --lanes_left_;
      return;
    }
  }
  enter_step(lane, state);
}

bool HostExecutor::ready(const LaneState& state, const PlanStep& step) {
  if (step.waits > 0 && !waits_hold(state, step)) return false;
  if (!lends_.empty()) [[unlikely]]
    if (const Rank peer = lent_to(step, state.slice); peer != kNoRank) {
      block_on(peer, state);
      return false;
    }
  const PlanOperand* operand = &plan_.operands[step.first_operand];
  const PlanOperand* const sources = operand + step.destinations;
  for (; operand != sources; ++operand) {
    if (operand->kind != OperandKind::kSend) continue;
    Connection& connection = sends_[operand->connection];
    if (can_send(connection)) continue;
    if (is_corrupt(connection)) raise(Fault::kCorrupt, operand->peer);
    block_on(operand->peer, state);
    return false;
  }
  for (const PlanOperand* const end = sources + step.sources; operand != end; ++operand) {
    if (operand->kind != OperandKind::kRecv) continue;
    Connection& connection = recvs_[operand->connection];
    if (!can_recv(connection)) {
      if (is_corrupt(connection)) raise(Fault::kCorrupt, operand->peer);
      if (takes_offers(connection)) offer_output(step, state, connection);
      block_on(operand->peer, state);
      return false;
    }
    if (recv_signature(connection) != args_.signature) {
      raise(Fault::kSignature, operand->peer);
      return false;
    }
  }
  return true;
}

void HostExecutor::block_on(Rank peer, const LaneState& state) {
  if (blocked_on_ != kNoRank) return;
  blocked_on_ = peer;
  blocked_lane_ = static_cast<std::size_t>(&state - states_.data());
}

bool HostExecutor::waits_hold(const LaneState& state, const PlanStep& step) const {
  const std::uint64_t turn = state.slice / plan_.shape.replicas;
  for (std::uint32_t i = 0; i < step.waits; ++i) {
    const Wait& wait = plan_.waits[step.first_wait + i];
    if (turn < wait.back) continue;
    const std::uint64_t needed = (turn - wait.back) * plan_.lanes[wait.lane].steps + wait.step;
    if (states_[wait.lane].fired <= needed) return false;
  }
  return true;
}

// Whom the memory that the step writes is lent to.
Rank HostExecutor::lent_to(const PlanStep& step, std::uint32_t slice) {
  for (std::uint32_t d = 0; d < step.destinations; ++d) {
    const PlanOperand& operand = plan_.operands[step.first_operand + d];
    if (operand.kind != OperandKind::kLocal || operand.buffer == BufferKind::kScratch) continue;
    for (std::uint32_t k = 0; k < operand.span.count(); ++k) {
      const std::byte* const begin = local_address(operand, k, slice);
      const std::byte* const end = begin + chunk_bytes(step, k, slice);
      for (const Lend& lend : lends_)
        if (begin < lend.end && lend.begin < end && !taken(lend)) return lend.peer;
    }
  }
  return kNoRank;
}

// Returns where the operand's chunks lie; null: not one behind the other.
std::byte* HostExecutor::one_piece(const PlanStep& step, const PlanOperand& operand,
                                   std::uint32_t slice) {
  std::byte *begin = nullptr, *end = nullptr;
  for (std::uint32_t k = 0; k < operand.span.count(); ++k) {
    const std::uint64_t bytes = chunk_bytes(step, k, slice);
    if (bytes == 0) continue;
    std::byte* const chunk = local_address(operand, k, slice);
    if (begin == nullptr) begin = end = chunk;
    if (chunk != end) return nullptr;
    end += bytes;
  }
  return begin;
}

// The step lacks nothing but the message of `connection`. If it only copies that, the transport may
// read the payload straight to the output: whatever else touches that memory comes either before
// this step, by the lane, a wait or what the peer had received when it sent, or after it.
void HostExecutor::offer_output(const PlanStep& step, const LaneState& state,
                                Connection& connection) {
  if (step.sources != 1 || state.bytes < kLeastOfferedBytes || has_offered(connection)) return;
  if (step.finish && args_.average_over > 0) return;
  for (std::uint32_t d = 0; d < step.destinations; ++d) {
    const PlanOperand& operand = plan_.operands[step.first_operand + d];
    if (operand.kind != OperandKind::kLocal || operand.buffer != BufferKind::kOutput) continue;
    std::byte* const output = one_piece(step, operand, state.slice);
    if (output == nullptr) continue;
    offer_memory(connection, args_.signature, state.bytes, output);
    return;
  }
}

// Memory is lent that may be on offer for a step that comes later: it is offered again once the
// transport has taken it.
void HostExecutor::withdraw_offers(const std::byte* begin, const std::byte* end) {
  for (Connection& connection : recvs_) {
    if (!takes_offers(connection) || !has_offered(connection)) continue;
    const Offer& offer = *connection.state->offer;
    if (offer.memory < end && begin < offer.memory + offer.bytes) withdraw_offer(connection);
  }
}

// Returns the address in the user's memory of the bytes that the step sends, once it has written
// its other results; null: they are not in one piece, or may not be sent without a copy.
const std::byte* HostExecutor::lendable(const PlanStep& step, const LaneState& state) {
  if (!(args_.lend_input || args_.lend_output) || state.bytes < kLeastLentBytes) return nullptr;
  const PlanOperand* const first = &plan_.operands[step.first_operand];
  const auto at = [&](const PlanOperand& operand) -> const std::byte* {
    if (operand.kind != OperandKind::kLocal) return nullptr;
    const bool lend = (operand.buffer == BufferKind::kOutput && args_.lend_output) ||
                      (operand.buffer == BufferKind::kInput && args_.lend_input);
    return lend ? one_piece(step, operand, state.slice) : nullptr;
  };
  for (std::uint32_t d = 0; d < step.destinations; ++d)
    if (const std::byte* const written = at(first[d])) return written;
  const bool copies = step.sources == 1 && !(step.finish && args_.average_over > 0);
  return copies ? at(first[step.destinations]) : nullptr;
}

bool HostExecutor::fire(const PlanStep& step, const LaneState& state) {
  around_ = false;
  if (step.remote) return fire_remote(step, state);
  lent_ = lendable(step, state);
  const PlanOperand& source = plan_.operands[step.first_operand + step.destinations];
  const bool receives = step.sources == 1 && source.kind == OperandKind::kRecv;
  placed_ = receives ? received_at(recvs_[source.connection]) : nullptr;
  if (placed_ != nullptr) traffic_.placed_bytes += state.bytes;
  if (state.bytes < StoreGauge::kLeastBytes || !fills_shared_slots(step)) {
    run_chunks(step, state);
    return true;
  }
  store_gauged(gauge_of(step, state.bytes), state.bytes, [&](StoreGauge::Way way) {
    around_ = way == StoreGauge::Way::kAround;
    run_chunks(step, state);
  });
  return true;
}

// A slot's messages are all about as long, whereas a step in peers' memory is as long as the call;
// and in place it stores what it has just loaded.
StoreGauge& HostExecutor::gauge_of(const PlanStep& step, std::uint64_t bytes) {
  const auto number = static_cast<std::size_t>(&step - plan_.steps.data());
  if (plan_.remotes.empty()) return gauges_[number];
  const auto octave = static_cast<std::size_t>(std::bit_width(bytes / StoreGauge::kLeastBytes));
  const std::size_t kind = 2 * number + (input_base_ == output_base_ ? 1 : 0);
  return gauges_[kind * kGaugedOctaves + std::min(octave, kGaugedOctaves) - 1];
}

bool HostExecutor::fills_shared_slots(const PlanStep& step) const {
  if (plan_.options.protocol != Protocol::kSlots) return false;
  const std::span<const PlanOperand> written = operands_of(step).first(step.destinations);
  return std::ranges::any_of(written, [this](const PlanOperand& operand) {
    return operand.kind == OperandKind::kSend && sends_[operand.connection].state->posts == nullptr;
  });
}

void HostExecutor::run_chunks(const PlanStep& step, const LaneState& state) {
  const std::uint32_t slice = state.slice;
  std::uint64_t message_offset = 0;
  const std::uint32_t chunks = plan_.operands[step.first_operand].span.count();
  for (std::uint32_t k = 0; k < chunks; ++k) {
    const std::uint64_t bytes = chunk_bytes(step, k, slice);
    if (bytes > 0) run_chunk(step, slice, k, message_offset, bytes);
    message_offset += bytes;
  }
}

ReduceCopyArgs HostExecutor::kernel_call(const PlanStep& step) const {
  return {.sources = source_pointers_.data(),
          .source_count = step.sources,
          .destinations = destination_pointers_.data(),
          .destination_count = step.destinations,
          .average_over = step.finish ? args_.average_over : 0,
          .user = user_op_,
          .user_type = type_};
}

void HostExecutor::run_chunk(const PlanStep& step, std::uint32_t slice, std::uint32_t k,
                             std::uint64_t message_offset, std::uint64_t bytes) {
  ReduceCopyArgs call = kernel_call(step);
  for (std::uint64_t offset = 0; offset < bytes;) {
    call.destination_count = 0;
    const std::uint64_t in_message = message_offset + offset;
    const std::uint64_t piece =
        std::min(bytes - offset, segment_bytes() - in_message % segment_bytes());
    const PlanOperand* operand = &plan_.operands[step.first_operand];
    for (std::uint32_t d = 0; d < step.destinations; ++d, ++operand) {
      if (lends(*operand)) continue;
      const bool message = operand->kind == OperandKind::kSend;
      if (!message && placed_ != nullptr &&
          local_address(*operand, k, slice) == placed_ + message_offset)
        continue;
      destination_pointers_[call.destination_count] =
          message ? byte_at(send_slot(sends_[operand->connection]), in_message)
                  : local_address(*operand, k, slice) + offset;
      // Data that is sent without a copy is read again at once.
      const bool around = message ? around_
                                  : args_.nontemporal_output &&
                                        operand->buffer == BufferKind::kOutput && lent_ == nullptr;
      if (around && call.destination_count < 64)
        call.nontemporal_mask |= std::uint64_t{1} << call.destination_count;
      ++call.destination_count;
    }
    if (call.destination_count == 0) return;
    for (std::uint32_t s = 0; s < step.sources; ++s, ++operand)
      source_pointers_[s] =
          operand->kind != OperandKind::kRecv ? local_address(*operand, k, slice) + offset
          : placed_ != nullptr                ? placed_ + in_message
                               : byte_at(recv_slot(recvs_[operand->connection]), in_message);
    call.elements = piece / element_bytes_;
    args_.kernel(call);
    offset += piece;
  }
}

void HostExecutor::complete_messages(const PlanStep& step, std::uint64_t bytes) {
  const PlanOperand* operand = &plan_.operands[step.first_operand];
  for (std::uint32_t d = 0; d < step.destinations; ++d, ++operand) {
    if (operand->kind != OperandKind::kSend) continue;
    Connection& connection = sends_[operand->connection];
    if (lends(*operand)) {
      lends_.push_back(
          {connection.state, connection.state->next, operand->peer, lent_, lent_ + bytes});
      withdraw_offers(lent_, lent_ + bytes);
      commit_lent(connection, args_.signature, bytes, lent_);
      traffic_.lent_bytes += bytes;
    } else {
      commit(connection, args_.signature, bytes);
      if (around_) traffic_.around_bytes += bytes;
    }
    ++traffic_.messages;
    traffic_.payload_bytes += bytes;
  }
  for (std::uint32_t s = 0; s < step.sources; ++s, ++operand)
    if (operand->kind == OperandKind::kRecv) release(recvs_[operand->connection]);
}

std::uint64_t HostExecutor::chunk_bytes(const PlanStep& step, std::uint32_t k,
                                        std::uint32_t slice) const {
  // Scratch takes its size from the step's other operands; the first that names logical chunks
  // says.
  const std::uint32_t operands = std::uint32_t{step.destinations} + step.sources;
  for (std::uint32_t i = 0; i < operands; ++i) {
    const PlanOperand& operand = plan_.operands[step.first_operand + i];
    if (operand.kind == OperandKind::kLocal && operand.buffer == BufferKind::kScratch) continue;
    return elements_of(operand, k, slice).count() * element_bytes_;
  }
  return room_bytes_;
}

// Returns the chunk in the user's data, in which blocks lie by rank.
std::uint32_t HostExecutor::data_chunk(const PlanOperand& operand, std::uint32_t k,
                                       std::uint32_t slice) const {
  const ScheduleShape& shape = plan_.shape;
  const std::uint32_t chunk = operand.span.at(k, shape.chunks);
  return shape.block_ranks.empty() ? chunk
                                   : block_map(shape, slice % shape.replicas).data_chunk(chunk);
}

ElementRange HostExecutor::elements_of(const PlanOperand& operand, std::uint32_t k,
                                       std::uint32_t slice) const {
  const std::uint32_t chunk = data_chunk(operand, k, slice);
  if (sizes_ == nullptr) return cut_.slice(chunk, slice);
  const std::uint32_t each = cut_.chunks_each(), block = chunk / each;
  const UniformCut own{sizes_->counts[block], each, cut_.slices, cut_.grain};
  const ElementRange range = own.slice(chunk % each, slice);
  const std::uint64_t begin = sizes_->begins[block];
  return {begin + range.begin, begin + range.end};
}

// In the input or output of whoever owns the operand.
std::uint64_t HostExecutor::offset_of(const PlanOperand& operand, std::uint32_t k,
                                      std::uint32_t slice) const {
  return elements_of(operand, k, slice).begin * element_bytes_;
}

std::byte* HostExecutor::local_address(const PlanOperand& operand, std::uint32_t k,
                                       std::uint32_t slice) {
  if (operand.buffer == BufferKind::kScratch) {
    const std::uint32_t rooms = plan_.shape.scratch_chunks * plan_.shape.replicas;
    const std::uint64_t version = slice / plan_.shape.replicas % plan_.shape.scratch_versions;
    return scratch_.data() + (version * rooms + operand.span.at(k, rooms)) * room_bytes_;
  }
  const std::uint64_t begin = offset_of(operand, k, slice);
  // The kernel takes sources as const; a plan never lists input as a destination (verified).
  const std::uint64_t base = operand.buffer == BufferKind::kOutput ? output_base_ : input_base_;
  return reinterpret_cast<std::byte*>(base + begin);
}

void HostExecutor::raise(Fault fault, Rank peer) {
  fault_ = fault;
  fault_peer_ = peer;
}

}  // namespace tutti
