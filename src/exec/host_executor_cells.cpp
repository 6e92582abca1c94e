// SPDX-License-Identifier: Apache-2.0
// Small calls that repeat, of one cell a connection: the protocol of connection_ops.hpp with what
// it counts per message left out, one thing after the other.
#include <algorithm>
#include <bit>
#include <set>

#include "base/prefetch.hpp"
#include "exec/host_executor.hpp"
#include "exec/straight_moves.hpp"
#include "exec/waiter.hpp"

namespace tutti {
namespace {

// The slot of the connection's next message.
Cell& next_cell(const CellOp& op) {
  return *reinterpret_cast<Cell*>(op.cells + (op.state->next & op.mask) * op.stride);
}

const std::byte* cell_ahead(const CellOp& op) {
  return op.cells + ((op.state->next + op.ahead) & op.mask) * op.stride;
}

// What an answered connection sent until the last operation began has been read.
[[gnu::always_inline]] inline bool may_send(const CellOp& op) {
  ConnectionState& state = *op.state;
  if (op.answered) state.seen = std::max(state.seen, op.connection->first_message);
  return state.next - state.seen <= op.mask || can_send(*op.connection);
}

void commit(const CellOp& op, Cell& to, std::uint64_t epoch, std::uint64_t signature) {
  op.connection->first_message = op.state->next++;
  to.signature.store(signature, std::memory_order_relaxed);
  // Release pairs with the acquire in run_cells() and can_recv().
  to.epoch.store(epoch, std::memory_order_release);
}

void add_ops(StraightLine& line, std::uint16_t step) {
  const StraightStep& here = line.steps[step];
  const StraightMove& move = line.moves[here.first_move];
  const auto add = [&](CellOp::Kind kind, std::uint32_t which) {
    Connection* const end = line.ends[which];
    line.ops.push_back({.kind = kind,
                        .answered = std::ranges::find(line.answered, end) != line.answered.end(),
                        .step = step,
                        .message = static_cast<std::uint16_t>(StraightPlace::kFirstMessage + which),
                        .mask = end->slots - 1,
                        .stride = static_cast<std::uint32_t>(
                            (end->is_short ? 1 : end->cells_per_slot) * kCellBytes),
                        .cells = reinterpret_cast<std::byte*>(cell_of(*end, 0)),
                        .state = end->state,
                        .connection = end,
                        .consumed = &end->words->consumed,
                        .source = line.places[move.first_place + move.destinations],
                        .size = move.bytes});
  };
  const std::uint32_t sends = here.first_end, receives = sends + here.sends,
                      end = receives + here.receives;
  const bool copies_out = here.moves == 1 && move.copies && move.destinations == 1 &&
                          here.sends == 1 && here.receives == 0;
  if (copies_out) return add(CellOp::kSend, sends);
  for (std::uint32_t i = sends; i < receives; ++i) add(CellOp::kOpen, i);
  for (std::uint32_t i = receives; i < end; ++i) add(CellOp::kReceive, i);
  CellOp moves;
  moves.kind = CellOp::kMove;
  moves.step = step;
  if (here.moves == 1 && move.destinations == 1 && move.sources == 2) {
    const StraightPlace* const place = line.places.data() + move.first_place;
    moves.kind = CellOp::kReduce;
    moves.destination = place[0];
    moves.source = place[1];
    moves.other = place[2];
    moves.size = move.elements;
    moves.average_over = move.finish ? line.average_over : 0;
  }
  line.ops.push_back(moves);
  for (std::uint32_t i = sends; i < receives; ++i) add(CellOp::kCommit, i);
  for (std::uint32_t i = receives; i < end; ++i) add(CellOp::kRelease, i);
}

bool sends(const CellOp& op) { return op.kind == CellOp::kSend || op.kind == CellOp::kCommit; }

// Of the connection's message that is `ahead` of the operation's next one.
CellOp fetch_of(const StraightLine& line, const CellOp& op, CellOp::Kind kind,
                std::uint32_t ahead) {
  CellOp fetch = op;
  fetch.kind = kind;
  fetch.ahead = ahead;
  fetch.size = static_cast<std::uint32_t>(lines_of(kCellHeaderBytes + line.steps[op.step].bytes));
  return fetch;
}

// After the last message: an earlier fetch would compete with the messages that are waited for.
void add_fetches(StraightLine& line) {
  for (std::size_t i = 0, all = line.ops.size(); i < all; ++i)
    if (sends(line.ops[i])) line.ops.push_back(fetch_of(line, line.ops[i], CellOp::kFetch, 0));
}

// Where messages go one way, the sender may be ahead: a receiver fetches its next message while it
// works on this one, and a sender the lines of a later one, since a store into a line that the
// reader still has holds up the next locked instruction. Of short cells: of others there are so few
// that a fetch would come before the sender's store, and only take the line from it.
void add_fetches_of_rows(StraightLine& line) {
  constexpr std::uint32_t kAhead = 8;  // 4 are too few where a line is far, 16 too many
  std::vector<CellOp> ops;
  for (const CellOp& op : line.ops) {
    ops.push_back(op);
    if (op.connection == nullptr || !op.connection->is_short) continue;
    if (sends(op) && op.mask >= kAhead) ops.push_back(fetch_of(line, op, CellOp::kFetch, kAhead));
    if (op.kind == CellOp::kReceive) ops.push_back(fetch_of(line, op, CellOp::kFetchRead, 1));
  }
  line.ops = std::move(ops);
}

}  // namespace

void HostExecutor::note_cells(StraightLine& line) {
  use_short_messages(line.short_messages);  // add_ops() reads its cells from the connections
  const std::set<const Connection*> distinct(line.ends.begin(), line.ends.end());
  const bool cells = std::ranges::all_of(line.ends, [](const Connection* end) {
    return end->protocol == Protocol::kFlagged && std::has_single_bit(end->slots) &&
           end->state->posts == nullptr;
  });
  const bool single = std::ranges::all_of(line.steps, [](const StraightStep& step) {
    return step.bytes <= kCellPayloadBytes && step.moves > 0;
  });
  if (distinct.size() != line.ends.size() || !cells || !single) return;
  for (std::size_t step = 0; step < line.steps.size(); ++step)
    add_ops(line, static_cast<std::uint16_t>(step));
  CellOp enter;
  enter.kind = CellOp::kEnter;
  line.ops.insert(std::ranges::find(line.ops, CellOp::kReceive, &CellOp::kind), enter);
  if (line.answered.empty())
    add_fetches_of_rows(line);
  else
    add_fetches(line);
  CellOp end;
  end.kind = CellOp::kEnd;
  line.ops.push_back(end);
}

void HostExecutor::go_on_at_cells(const StraightLine& line, std::uint32_t step,
                                  const StraightCall& call) {
  begin(call.operation, line.short_messages);
  for (std::size_t i = 0; i < line.steps[step].first_end; ++i) --line.ends[i]->first_message;
  go_on_at(line, step, call);
}

bool HostExecutor::run_cells(const StraightLine& line, const StraightCall& call,
                             std::uint32_t most_looks) {
  if (line.short_messages != short_messages_) [[unlikely]]
    use_short_messages(line.short_messages);
  const std::uint64_t epoch = make_epoch(call.operation, 0), signature = call.signature;
  std::byte** const bases = bases_.data();
  bases[StraightPlace::kInput] = reinterpret_cast<std::byte*>(call.input_base);
  bases[StraightPlace::kOutput] = reinterpret_cast<std::byte*>(call.output_base);
  bases[StraightPlace::kScratch] = scratch_.data();
  const auto address = [bases](StraightPlace place) { return bases[place.base] + place.offset; };
  std::uint32_t looks = 0;
  for (const CellOp* op = line.ops.data();;) {
    switch (op->kind) {
      case CellOp::kOpen:
        if (!may_send(*op)) break;
        bases[op->message] = next_cell(*op).payload;
        ++op;
        continue;
      case CellOp::kReceive: {
        Cell& from = next_cell(*op);
        if (from.epoch.load(std::memory_order_acquire) != epoch ||
            from.signature.load(std::memory_order_relaxed) != signature)
          break;
        bases[op->message] = from.payload;
        ++op;
        continue;
      }
      case CellOp::kMove:
        run_moves<false>(line, line.steps[op->step]);
        looks = 0;  // the next step's
        ++op;
        continue;
      case CellOp::kReduce: {
        const void* const sources[] = {address(op->source), address(op->other)};
        void* const destinations[] = {address(op->destination)};
        line.kernel({.sources = sources,
                     .source_count = 2,
                     .destinations = destinations,
                     .destination_count = 1,
                     .elements = op->size,
                     .average_over = op->average_over});
        looks = 0;
        ++op;
        continue;
      }
      case CellOp::kCommit:
        commit(*op, next_cell(*op), epoch, signature);
        ++op;
        continue;
      case CellOp::kSend: {
        if (!may_send(*op)) break;
        Cell& to = next_cell(*op);
        copy_straight(to.payload, address(op->source), op->size);
        commit(*op, to, epoch, signature);
        looks = 0;
        ++op;
        continue;
      }
      case CellOp::kRelease:
        // Release pairs with the acquire in reload_consumed().
        op->consumed->store(++op->state->next, std::memory_order_release);
        ++op;
        continue;
      case CellOp::kFetch:
        prefetch_lines_to_write(cell_ahead(*op), op->size);
        ++op;
        continue;
      case CellOp::kFetchRead:
        prefetch_lines(cell_ahead(*op), op->size);
        ++op;
        continue;
      case CellOp::kEnter:
        call.hooks.enter(call);
        ++op;
        continue;
      case CellOp::kEnd:
        traffic_.messages += line.messages;
        traffic_.payload_bytes += line.payload_bytes;
        return true;
      default:
        __builtin_unreachable();
    }
    if (looks++ == most_looks) [[unlikely]] {
      const CellOp* const last = line.ops.data() + line.ops.size();
      if (std::find_if(op, last, [](const CellOp& left) { return left.kind == CellOp::kEnter; }) !=
          last)
        call.hooks.enter(call);
      go_on_at_cells(line, op->step, call);
      return false;
    }
    Waiter::relax();
  }
}

}  // namespace tutti
