// SPDX-License-Identifier: Apache-2.0
#include "reference_executor.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace tutti::reference {
namespace {

constexpr std::uint32_t kMaxSlicesPerReplica = 4;
constexpr std::uint32_t kAsleep = ~std::uint32_t{0};

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = (a ^ (b + 0x632be59bd9b4e019)) * 0xd6e8feb86659fd93;
  z ^= z >> 32;
  z *= 0xd6e8feb86659fd93;
  return z ^ (z >> 29);
}

// The post-operation: not linear, so that finishing parts is not finishing their sum.
std::uint64_t scramble(std::uint64_t sum) { return mix(sum, 0x5eed); }

}  // namespace

// Blocks that change their places have one size; chunks of one block differ.
std::uint32_t ReferenceExecutor::size_of(std::uint32_t chunk) const {
  return 1 + (meaning_.result == Meaning::Result::kTransposed ? chunk % chunks_each() : chunk);
}

ReferenceExecutor::ReferenceExecutor(const Schedule& schedule) : schedule_(schedule) { flatten(); }

bool ReferenceExecutor::invalid(std::string why) {
  if (invalid_.empty()) invalid_ = std::move(why);
  return false;
}

std::optional<ReferenceExecutor::Meaning> ReferenceExecutor::meaning_of(Collective collective) {
  using enum Meaning::Has;
  using enum Meaning::Result;
  switch (collective) {
    case Collective::kAllReduce:
      return Meaning{};
    case Collective::kReduce:
      return Meaning{.output = kNothing};
    case Collective::kBroadcast:
      return Meaning{.input = kNothing, .result = kRootsInput};
    case Collective::kReduceScatter:
      return Meaning{.output = kOwnBlock, .roots_output = kOwnBlock, .blocks = true};
    case Collective::kAllGather:
      return Meaning{
          .input = kOwnBlock, .roots_input = kOwnBlock, .result = kOwnersInput, .blocks = true};
    case Collective::kGather:
      return Meaning{.input = kOwnBlock,
                     .output = kNothing,
                     .roots_input = kOwnBlock,
                     .result = kOwnersInput,
                     .blocks = true};
    case Collective::kScatter:
      return Meaning{.input = kNothing,
                     .output = kOwnBlock,
                     .roots_output = kOwnBlock,
                     .result = kRootsInput,
                     .blocks = true};
    case Collective::kAllToAll:
      return Meaning{.result = kTransposed, .blocks = true};
    default:
      return std::nullopt;
  }
}

Rank ReferenceExecutor::owner_of(std::uint32_t chunk) const {
  return static_cast<Rank>(chunk / chunks_each());
}

bool ReferenceExecutor::has(Rank rank, bool output, std::uint32_t chunk) const {
  const bool root = rank == schedule_.shape.root;
  const Meaning::Has has = output ? (root ? meaning_.roots_output : meaning_.output)
                                  : (root ? meaning_.roots_input : meaning_.input);
  return has == Meaning::Has::kAll || (has == Meaning::Has::kOwnBlock && owner_of(chunk) == rank);
}

std::uint32_t ReferenceExecutor::chunk_of(std::uint32_t chunk, std::uint32_t replica) const {
  const ScheduleShape& shape = schedule_.shape;
  if (shape.block_ranks.empty()) return chunk;
  const std::size_t ranks = schedule_.ranks.size(), each = shape.chunks / ranks;
  const auto block = static_cast<std::size_t>(shape.block_ranks[replica * ranks + chunk / each]);
  return static_cast<std::uint32_t>(block * each + chunk % each);
}

// Whether the chunks are blocks, and each replica has each of them once.
bool ReferenceExecutor::check_blocks() const {
  const ScheduleShape& shape = schedule_.shape;
  if (!meaning_.blocks) return shape.block_ranks.empty();
  const std::size_t ranks = schedule_.ranks.size();
  if (shape.chunks % ranks != 0) return false;
  if (shape.block_ranks.empty()) return true;
  if (shape.block_ranks.size() != ranks * shape.replicas) return false;
  std::vector<std::uint32_t> times(ranks, 0);
  for (std::size_t i = 0; i < shape.block_ranks.size(); ++i) {
    const Rank rank = shape.block_ranks[i];
    if (rank < 0 || rank >= shape.ranks) return false;
    if (++times[static_cast<std::size_t>(rank)] != i / ranks + 1) return false;
  }
  return true;
}

void ReferenceExecutor::flatten() {
  const ScheduleShape& shape = schedule_.shape;
  const std::optional<Meaning> known = meaning_of(shape.collective);
  if (!known) {
    invalid("a collective that this executor does not know");
    return;
  }
  meaning_ = *known;
  if (!check_blocks()) {
    invalid("chunks that are not the ranks' blocks");
    return;
  }
  rank_lanes_.resize(schedule_.ranks.size());
  for (std::size_t r = 0; r < schedule_.ranks.size(); ++r) {
    for (const Lane& lane : schedule_.ranks[r].lanes) {
      rank_lanes_[r].push_back(static_cast<std::uint32_t>(lanes_.size()));
      lanes_.push_back({static_cast<Rank>(r), lane.replica, {}});
      if (lane.replica >= shape.replicas || lane.steps.empty()) {
        invalid("a lane of no replica or without steps");
        return;
      }
    }
  }
  for (std::size_t r = 0; r < schedule_.ranks.size(); ++r) {
    for (std::size_t l = 0; l < schedule_.ranks[r].lanes.size(); ++l) {
      const Lane& lane = schedule_.ranks[r].lanes[l];
      for (const Step& step : lane.steps)
        if (!flatten_step(static_cast<Rank>(r), rank_lanes_[r][l], step, lane.replica)) return;
    }
  }
  for (const FlatLane& lane : lanes_)
    for (const FlatStep& step : lane.steps)
      for (const FlatWait& wait : step.waits)
        if (wait.step >= lanes_[wait.lane].steps.size()) invalid("a wait for no step");
}

bool ReferenceExecutor::flatten_step(Rank rank, std::uint32_t lane, const Step& step,
                                     std::uint32_t replica) {
  FlatStep flat;
  flat.finish = step.finish;
  if (step.sources.empty() || step.destinations.empty()) return invalid("a step without a side");
  flat.count = step.sources.front().span.count();
  flat.first_size = static_cast<std::uint32_t>(sizes_.size());
  sizes_.resize(sizes_.size() + flat.count);
  for (const Operand& operand : step.sources)
    if (!flatten_operand(rank, lane, operand, replica, flat, false)) return false;
  for (const Operand& operand : step.destinations)
    if (!flatten_operand(rank, lane, operand, replica, flat, true)) return false;
  for (std::uint32_t k = 0; k < flat.count; ++k)
    if (sizes_[flat.first_size + k] == 0) return invalid("a step of scratch alone");
  const auto& lanes = rank_lanes_[static_cast<std::size_t>(rank)];
  for (const Wait& wait : step.waits) {
    has_waits_ = true;
    if (wait.lane >= lanes.size()) return invalid("a wait for no lane");
    flat.waits.push_back({lanes[wait.lane], wait.step, wait.back});
  }
  lanes_[lane].steps.push_back(std::move(flat));
  return true;
}

bool ReferenceExecutor::flatten_operand(Rank rank, std::uint32_t lane, const Operand& operand,
                                        std::uint32_t replica, FlatStep& flat, bool destination) {
  const ScheduleShape& shape = schedule_.shape;
  const bool message = operand.kind == OperandKind::kSend || operand.kind == OperandKind::kRecv;
  const bool scratch = !message && operand.buffer == BufferKind::kScratch;
  if (operand.kind != OperandKind::kLocal && (operand.peer < 0 || operand.peer >= shape.ranks))
    return invalid("a peer that is not there");
  if (operand.span.count() != flat.count) return invalid("spans of different counts");
  if (destination ? operand.kind == OperandKind::kRecv : operand.kind == OperandKind::kSend)
    return invalid("a message on the wrong side");
  if (destination && !message && operand.buffer == BufferKind::kInput)
    return invalid("input as a destination");
  FlatOperand to{operand.kind,
                 operand.buffer,
                 operand.kind == OperandKind::kRemote ? operand.peer : rank,
                 0,
                 0,
                 static_cast<std::uint32_t>(positions_.size())};
  const std::uint32_t rooms = shape.scratch_chunks * shape.replicas;
  for (std::uint32_t k = 0; k < flat.count; ++k) {
    if (scratch && operand.span.first / std::max(shape.scratch_chunks, 1U) != replica)
      return invalid("another replica's room");
    if (scratch && rooms == 0) return invalid("scratch where there is none");
    const std::uint32_t named = operand.span.at(k, scratch ? rooms : shape.chunks);
    const std::uint32_t position = scratch ? named : chunk_of(named, replica);
    positions_.push_back(position);
    if (scratch) continue;
    if (!message && !has(to.owner, operand.buffer == BufferKind::kOutput, position))
      return invalid("a part of a buffer that its rank does not have");
    std::uint32_t& size = sizes_[flat.first_size + k];
    if (size == 0) size = size_of(position);
    if (size != size_of(position)) return invalid("chunks of different sizes in one step");
  }
  if (message) {
    const auto key = destination ? std::tuple(rank, operand.peer, operand.tag)
                                 : std::tuple(operand.peer, rank, operand.tag);
    const auto [place, fresh] =
        numbers_.try_emplace(key, static_cast<std::uint32_t>(connections_.size()));
    if (fresh) connections_.emplace_back();
    to.connection = place->second;
    const auto& before = destination ? flat.destinations : flat.sources;
    to.nth = static_cast<std::uint32_t>(std::ranges::count_if(before, [&](const FlatOperand& o) {
      return o.kind == operand.kind && o.connection == to.connection;
    }));
    auto& ends =
        destination ? connections_[to.connection].senders : connections_[to.connection].receivers;
    if (std::ranges::find(ends, lane) == ends.end()) ends.push_back(lane);
  }
  (destination ? flat.destinations : flat.sources).push_back(to);
  return true;
}

bool ReferenceExecutor::fail(std::uint32_t lane, const std::string& what) {
  const LaneState& state = states_[lane];
  failure_ = fmt::format("rank {}, lane {}, step {}, slice {} of its replica: {}",
                         lanes_[lane].rank, lane, state.step, state.slice, what);
  return false;
}

ReferenceExecutor::Value ReferenceExecutor::input_value(Rank rank, std::uint32_t operation,
                                                        std::uint32_t slice,
                                                        std::uint32_t chunk) const {
  const std::uint64_t who = static_cast<std::uint64_t>(rank) << 32 | chunk;
  return {mix(data_seed_ + operation * 1000003 + slice, who), mix(7, who), size_of(chunk)};
}

void ReferenceExecutor::reset(const RunOptions& options) {
  const ScheduleShape& shape = schedule_.shape;
  random_ = Random(options.seed);
  data_seed_ = random_.next();
  policy_ = random_.below(3);
  slices_ = 1 + random_.below(kMaxSlicesPerReplica * shape.replicas);
  if (options.slices > 0) slices_ = options.slices;
  in_place_ = options.in_place;
  slots_ = options.slots;
  credits_ = options.credits;
  operations_ = options.operations;
  for (Connection& connection : connections_) connection.sent = connection.received = 0;
  slots_of_.resize(connections_.size() * slots_);
  states_.resize(lanes_.size());
  priorities_.resize(lanes_.size());
  for (std::uint64_t& priority : priorities_) priority = random_.next();
  awake_.clear();
  place_.assign(lanes_.size(), kAsleep);
  current_ = 0;
  failure_.clear();
  sums_.assign(std::size_t{operations_} * slices_ * shape.chunks, 0);
  orders_.resize(std::size_t{shape.replicas} * shape.chunks);
  ranks_.resize(schedule_.ranks.size());
  ranks_left_ = static_cast<std::uint32_t>(ranks_.size());
  for (RankState& rank : ranks_) rank.operation = 0;
  for (std::size_t r = 0; r < ranks_.size(); ++r) begin_operation(static_cast<Rank>(r));
}

void ReferenceExecutor::begin_operation(Rank rank) {
  const ScheduleShape& shape = schedule_.shape;
  RankState& state = ranks_[static_cast<std::size_t>(rank)];
  state.in_place = random_.below(2) == 0 && !shape.apart;
  if (!in_place_.empty()) state.in_place = in_place_[static_cast<std::size_t>(rank)];
  const std::size_t cells = std::size_t{slices_} * shape.chunks;
  state.input.assign(cells, {});
  state.output.assign(cells, {});
  const std::size_t rooms = std::size_t{shape.scratch_chunks} * shape.replicas;
  state.scratch.assign(rooms * shape.scratch_versions, {});
  auto& holds_input = state.in_place ? state.output : state.input;
  for (std::uint32_t slice = 0; slice < slices_; ++slice) {
    for (std::uint32_t chunk = 0; chunk < shape.chunks; ++chunk) {
      if (!has(rank, false, chunk)) continue;
      const Value value = input_value(rank, state.operation, slice, chunk);
      // No rank can have a sum rightly before all have begun the operation: it is whole by then.
      sums_[(state.operation * slices_ + slice) * shape.chunks + chunk] += value.sum;
      holds_input[slice * shape.chunks + chunk] = {value.sum, value.order, value.elements, 0, 0};
    }
  }
  const auto& lanes = rank_lanes_[static_cast<std::size_t>(rank)];
  state.lanes_left = static_cast<std::uint32_t>(lanes.size());
  for (const std::uint32_t lane : lanes) {
    LaneState& fresh = states_[lane];
    fresh.slice = fresh.step = 0;
    fresh.reading = false;
    fresh.ended = lanes_[lane].replica >= slices_;
    fresh.done.assign(lanes_[lane].steps.size(), 0);
    if (fresh.ended)
      --state.lanes_left;
    else
      wake(lane);
  }
}

std::uint64_t ReferenceExecutor::expected(Rank rank, std::uint32_t operation, std::uint32_t slice,
                                          std::uint32_t chunk) const {
  switch (meaning_.result) {
    case Meaning::Result::kRootsInput:
      return input_value(schedule_.shape.root, operation, slice, chunk).sum;
    case Meaning::Result::kOwnersInput:
      return input_value(owner_of(chunk), operation, slice, chunk).sum;
    case Meaning::Result::kTransposed:
      return input_value(owner_of(chunk), operation, slice,
                         static_cast<std::uint32_t>(rank) * chunks_each() + chunk % chunks_each())
          .sum;
    case Meaning::Result::kSum:
      break;
  }
  return scramble(sums_[(operation * slices_ + slice) * schedule_.shape.chunks + chunk]);
}

// Every chunk of every slice that the rank has: all contributions, finished once, added in the
// order that is the same on every rank and in every run; or the input of the rank that it comes
// from.
bool ReferenceExecutor::end_operation(Rank rank) {
  const ScheduleShape& shape = schedule_.shape;
  RankState& state = ranks_[static_cast<std::size_t>(rank)];
  const auto wrong = [&](std::uint32_t slice, std::uint32_t chunk, const char* what) {
    failure_ =
        fmt::format("rank {}, operation {}, slice {}, output chunk {}{}: {}", rank, state.operation,
                    slice, chunk, state.in_place ? " (in place)" : "", what);
    return false;
  };
  for (std::uint32_t slice = 0; slice < slices_; ++slice) {
    for (std::uint32_t chunk = 0; chunk < shape.chunks; ++chunk) {
      const Cell& found = state.output[slice * shape.chunks + chunk];
      if (found.readers != 0 || found.writers != 0)
        return wrong(slice, chunk, "still touched by a peer at the end");
      if (!has(rank, true, chunk)) continue;
      if (found.sum != expected(rank, state.operation, slice, chunk))
        return wrong(slice, chunk, "wrong value");
      if (found.elements != size_of(chunk)) return wrong(slice, chunk, "wrong size");
      if (meaning_.result == Meaning::Result::kTransposed) continue;  // to each rank its own
      std::uint64_t& order = orders_[slice % shape.replicas * shape.chunks + chunk];
      if (order == 0) order = found.order;
      if (order != found.order) return wrong(slice, chunk, "another order");
    }
  }
  if (++state.operation == operations_)
    --ranks_left_;
  else
    begin_operation(rank);
  return true;
}

void ReferenceExecutor::wake(std::uint32_t lane) {
  if (place_[lane] != kAsleep) return;
  place_[lane] = static_cast<std::uint32_t>(awake_.size());
  awake_.push_back(lane);
  if (policy_ == 1 && priorities_[lane] > priorities_[current_]) current_ = lane;
}

void ReferenceExecutor::sleep(std::uint32_t lane) {
  const std::uint32_t hole = place_[lane];
  awake_[hole] = awake_.back();
  place_[awake_[hole]] = hole;
  awake_.pop_back();
  place_[lane] = kAsleep;
}

std::uint32_t ReferenceExecutor::highest_priority() const {
  return *std::ranges::max_element(awake_, {},
                                   [&](std::uint32_t lane) { return priorities_[lane]; });
}

// Three ways to be unfair: none, some lanes always behind, one lane as far ahead as it can.
std::uint32_t ReferenceExecutor::choose() {
  const std::uint32_t any = awake_[random_.below(awake_.size())];
  if (policy_ == 0) return any;
  if (policy_ == 1) {
    const bool other = random_.below(32) == 0;
    if (other) priorities_[any] = random_.next();
    if (other || place_[current_] == kAsleep) current_ = highest_priority();
    return current_;
  }
  if (place_[current_] == kAsleep || random_.below(8) == 0) current_ = any;
  return current_;
}

std::optional<std::string> ReferenceExecutor::run(const RunOptions& options) {
  if (!invalid_.empty()) return invalid_;
  reset(options);
  while (!awake_.empty()) {
    const std::uint32_t lane = choose();
    LaneState& state = states_[lane];
    if (state.ended) {
      sleep(lane);
    } else if (state.reading) {
      if (!end_step(lane)) return failure_;
    } else if (!enabled(lanes_[lane].steps[state.step], state)) {
      sleep(lane);
    } else if (!start_step(lane)) {
      return failure_;
    }
  }
  if (ranks_left_ > 0) return fmt::format("{} ranks are stuck", ranks_left_);
  for (const Connection& connection : connections_)
    if (connection.sent != connection.received) return "a message was left over";
  return std::nullopt;
}

bool ReferenceExecutor::enabled(const FlatStep& step, const LaneState& state) const {
  for (const FlatOperand& source : step.sources) {
    if (source.kind != OperandKind::kRecv) continue;
    const Connection& connection = connections_[source.connection];
    if (connection.received + source.nth >= connection.sent) return false;
  }
  for (const FlatOperand& destination : step.destinations) {
    if (destination.kind != OperandKind::kSend || !credits_) continue;
    const Connection& connection = connections_[destination.connection];
    if (connection.sent + destination.nth >= connection.received + slots_) return false;
  }
  return std::ranges::all_of(step.waits, [&](const FlatWait& wait) {
    return state.slice < wait.back || states_[wait.lane].done[wait.step] > state.slice - wait.back;
  });
}

ReferenceExecutor::Cell& ReferenceExecutor::cell(std::uint32_t lane, const FlatOperand& operand,
                                                 std::uint32_t k) {
  const ScheduleShape& shape = schedule_.shape;
  RankState& owner = ranks_[static_cast<std::size_t>(operand.owner)];
  const std::uint32_t position = positions_[operand.first_position + k];
  const std::uint32_t own_slice = states_[lane].slice;
  if (operand.buffer == BufferKind::kScratch)
    return owner
        .scratch[own_slice % shape.scratch_versions * shape.scratch_chunks * shape.replicas +
                 position];
  const std::uint32_t slice = lanes_[lane].replica + own_slice * shape.replicas;
  const bool output = operand.buffer == BufferKind::kOutput || owner.in_place;
  return (output ? owner.output : owner.input)[slice * shape.chunks + position];
}

// Counts the step among the readers and writers of its cells, or no longer. On beginning, none of
// its cells may have a writer, nor one that it writes a reader; itself is not counted yet, so that
// it may write where it reads.
bool ReferenceExecutor::touch(std::uint32_t lane, const FlatStep& step, bool begin) {
  const std::uint32_t operation = ranks_[static_cast<std::size_t>(lanes_[lane].rank)].operation;
  const auto each_cell = [&](const auto& act) {
    for (const auto* side : {&step.sources, &step.destinations}) {
      for (const FlatOperand& operand : *side) {
        if (operand.kind == OperandKind::kSend || operand.kind == OperandKind::kRecv) continue;
        for (std::uint32_t k = 0; k < step.count; ++k)
          if (!act(operand, side == &step.destinations, k)) return false;
      }
    }
    return true;
  };
  const bool free = each_cell([&](const FlatOperand& operand, bool write, std::uint32_t k) {
    if (ranks_[static_cast<std::size_t>(operand.owner)].operation != operation)
      return fail(lane, "touches a peer's memory outside of its operation");
    const Cell& touched = cell(lane, operand, k);
    if (begin && (touched.writers != 0 || (write && touched.readers != 0)))
      return fail(lane, "two steps at one cell, one of them writing");
    return true;
  });
  return free && each_cell([&](const FlatOperand& operand, bool write, std::uint32_t k) {
           std::uint16_t& users =
               write ? cell(lane, operand, k).writers : cell(lane, operand, k).readers;
           users = static_cast<std::uint16_t>(begin ? users + 1 : users - 1);
           return true;
         });
}

bool ReferenceExecutor::read(std::uint32_t lane, const FlatStep& step, std::uint32_t k,
                             Value& value) {
  const std::uint32_t elements = sizes_[step.first_size + k];
  bool first = true;
  for (const FlatOperand& source : step.sources) {
    Value part;
    if (source.kind == OperandKind::kRecv) {
      const Connection& connection = connections_[source.connection];
      const std::uint64_t message = connection.received + source.nth;
      const Slot& slot = slots_of_[source.connection * slots_ + message % slots_];
      if (slot.count != step.count) return fail(lane, "a message of another count");
      part = slot.values[k];
      if (part.elements != elements) return fail(lane, "a message of another size");
    } else {
      const Cell& from = cell(lane, source, k);
      part = {from.sum, from.order, from.elements};
      if (part.elements != elements)
        return fail(lane, part.elements < elements ? "reads what was not written"
                                                   : "reads a part of what was written");
    }
    value.sum = first ? part.sum : value.sum + part.sum;
    value.order = first ? part.order : mix(value.order, part.order);
    first = false;
  }
  value.elements = elements;
  if (step.sources.size() > 1) value.order = mix(value.order, step.sources.size());
  if (step.finish) {
    value.sum = scramble(value.sum);
    value.order = mix(value.order, 1);
  }
  return true;
}

bool ReferenceExecutor::start_step(std::uint32_t lane) {
  LaneState& state = states_[lane];
  const FlatStep& step = lanes_[lane].steps[state.step];
  state.values.resize(step.count);
  for (std::uint32_t k = 0; k < step.count; ++k)
    if (!read(lane, step, k, state.values[k])) return false;
  // An empty step still answers for the count of its messages.
  for (const FlatOperand& source : step.sources) {
    if (source.kind != OperandKind::kRecv || step.count > 0) continue;
    const std::uint64_t message = connections_[source.connection].received + source.nth;
    if (slots_of_[source.connection * slots_ + message % slots_].count != 0)
      return fail(lane, "a message of another count");
  }
  state.reading = true;
  if (!credits_ && !send(lane, step)) return false;
  return touch(lane, step, true);
}

bool ReferenceExecutor::send(std::uint32_t lane, const FlatStep& step) {
  const LaneState& state = states_[lane];
  for (const FlatOperand& destination : step.destinations) {
    if (destination.kind != OperandKind::kSend) continue;
    Connection& connection = connections_[destination.connection];
    if (connection.sent >= connection.received + slots_)
      return fail(lane, "overwrites a message that is not read");
    Slot& slot = slots_of_[destination.connection * slots_ + connection.sent++ % slots_];
    slot.count = step.count;
    slot.values.assign(state.values.begin(), state.values.end());
    for (const std::uint32_t peer : connection.receivers) wake(peer);
  }
  return true;
}

bool ReferenceExecutor::end_step(std::uint32_t lane) {
  LaneState& state = states_[lane];
  const FlatStep& step = lanes_[lane].steps[state.step];
  if (credits_ && !send(lane, step)) return false;
  for (const FlatOperand& destination : step.destinations) {
    if (destination.kind == OperandKind::kSend) continue;
    for (std::uint32_t k = 0; k < step.count; ++k) {
      Cell& to = cell(lane, destination, k);
      const Value& value = state.values[k];
      to.sum = value.sum;
      to.order = value.order;
      to.elements = value.elements;
    }
  }
  if (!touch(lane, step, false)) return false;
  for (const FlatOperand& source : step.sources) {
    if (source.kind != OperandKind::kRecv) continue;
    Connection& connection = connections_[source.connection];
    ++connection.received;
    for (const std::uint32_t peer : connection.senders) wake(peer);
  }
  state.reading = false;
  ++state.done[state.step];
  if (has_waits_)
    for (const std::uint32_t other : rank_lanes_[static_cast<std::size_t>(lanes_[lane].rank)])
      wake(other);
  if (++state.step < lanes_[lane].steps.size()) return true;
  return end_slice(lane);
}

bool ReferenceExecutor::end_slice(std::uint32_t lane) {
  const FlatLane& flat = lanes_[lane];
  LaneState& state = states_[lane];
  state.step = 0;
  ++state.slice;
  if (flat.replica + state.slice * schedule_.shape.replicas < slices_) return true;
  state.ended = true;
  RankState& rank = ranks_[static_cast<std::size_t>(flat.rank)];
  return --rank.lanes_left > 0 || end_operation(flat.rank);
}

}  // namespace tutti::reference
