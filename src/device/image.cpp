// SPDX-License-Identifier: Apache-2.0
#include "device/image.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::device {
namespace {

std::uint32_t block_of(const Program& program, std::uint32_t lane, Messages messages,
                       std::uint32_t blocks) {
  return (in_packets(messages) ? program.lanes[lane].replica : lane) % blocks;
}

// Of one block's program: the numbers of connections and lanes are its own.
class Part {
 public:
  Part(const Program& whole, std::span<const std::uint32_t> lanes) : whole_(whole), lanes_(lanes) {
    for (const std::uint32_t lane : lanes) add(whole.lanes[lane]);
  }
  Program program;
  std::vector<std::uint16_t> sends, recvs;  // numbers of the plan's

 private:
  void add(const Lane& from) {
    Lane lane = from;
    lane.first_loop = static_cast<std::uint32_t>(program.loops.size());
    program.lanes.push_back(lane);
    for (std::uint32_t i = 0; i < from.loops; ++i) {
      Loop loop = whole_.loops[from.first_loop + i];
      const std::uint32_t first = loop.first_step;
      loop.first_step = static_cast<std::uint32_t>(program.steps.size());
      program.loops.push_back(loop);
      for (std::uint32_t step = 0; step < loop.steps; ++step) add(whole_.steps[first + step]);
    }
  }
  void add(const Step& from) {
    Step step = from;
    step.first_operand = static_cast<std::uint32_t>(program.operands.size());
    step.first_wait = static_cast<std::uint32_t>(program.waits.size());
    for (std::uint32_t i = 0; i < std::uint32_t{from.destinations} + from.sources; ++i) {
      Operand operand = whole_.operands[from.first_operand + i];
      if (operand.kind == OperandKind::kSend) operand.connection = own(sends, operand.connection);
      if (operand.kind == OperandKind::kRecv) operand.connection = own(recvs, operand.connection);
      step.messages = step.messages || is_message(operand);
      program.operands.push_back(operand);
    }
    for (std::uint32_t i = 0; i < from.waits; ++i) {
      LoopWait wait = whole_.waits[from.first_wait + i];
      wait.steps = whole_.lanes[wait.wait.lane].steps;
      const auto found = std::ranges::find(lanes_, wait.wait.lane);
      if (found != lanes_.end()) wait.in_block = static_cast<std::uint32_t>(found - lanes_.begin());
      program.waits.push_back(wait);
    }
    program.steps.push_back(step);
  }
  static std::uint16_t own(std::vector<std::uint16_t>& all, std::uint16_t number) {
    const auto place = static_cast<std::uint16_t>(std::ranges::find(all, number) - all.begin());
    if (place == all.size()) all.push_back(number);
    return place;
  }

  const Program& whole_;
  std::span<const std::uint32_t> lanes_;
};

// Marks a step, by its number within a slice of its lane, loops unrolled.
void mark_awaited(Program& program, const Lane& lane, std::uint32_t step) {
  for (std::uint32_t i = 0; i < lane.loops; ++i) {
    const Loop& loop = program.loops[lane.first_loop + i];
    const std::uint32_t all = loop.steps * loop.repetitions;
    if (step < all) {
      program.steps[loop.first_step + step % loop.steps].awaited = true;
      return;
    }
    step -= all;
  }
}

// Calls `visit(wait, repetition)` for the waits of a lane's steps, in each repetition.
template <typename Visit>
void visit_waits(const Program& program, const Lane& lane, Visit&& visit) {
  for (std::uint32_t i = 0; i < lane.loops; ++i) {
    const Loop& loop = program.loops[lane.first_loop + i];
    for (std::uint32_t s = 0; s < loop.steps; ++s) {
      const Step& step = program.steps[loop.first_step + s];
      for (std::uint32_t w = 0; w < step.waits; ++w)
        for (std::uint32_t repetition = 0; repetition < loop.repetitions; ++repetition)
          visit(program.waits[step.first_wait + w], repetition);
    }
  }
}

}  // namespace

std::uint32_t blocks_for(const Plan& plan, Messages messages, std::uint32_t most) {
  const auto lanes = static_cast<std::uint32_t>(plan.lanes.size());
  return std::clamp(in_packets(messages) ? plan.options.replicas : lanes, 1U, std::max(most, 1U));
}

Image::Image(const Plan& plan, const Program& given, const Bindings& bindings) {
  Program program = given;
  const auto lanes = static_cast<std::uint32_t>(program.lanes.size());
  std::vector<std::vector<std::uint32_t>> of_block(bindings.blocks);
  const auto block = [&](std::uint32_t lane) {
    return block_of(program, lane, bindings.messages, bindings.blocks);
  };
  bool awaited = false;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    program.lanes[lane].number = lane;
    of_block[block(lane)].push_back(lane);
    visit_waits(program, program.lanes[lane], [&](const LoopWait& wait, std::uint32_t repetition) {
      if (block(wait.wait.lane) == block(lane)) return;
      awaited = true;
      mark_awaited(program, program.lanes[wait.wait.lane],
                   wait.wait.step + wait.advance * repetition);
    });
  }

  room(sizeof(BoundTask));
  // A block without a lane has an empty part.
  parts_ = room(std::max(bindings.blocks, bindings.most_blocks) * sizeof(BlockPart));
  std::vector<BlockPart> parts;
  for (const std::vector<std::uint32_t>& own : of_block) {
    const Part part(program, own);
    parts.push_back(add_part(plan, part.program, bindings, part.sends, part.recvs));
  }
  std::memcpy(bytes_.data() + parts_, parts.data(), parts.size() * sizeof(BlockPart));
  fired_ = room(lanes * sizeof(Word));
  bytes_.resize(room(0));

  const ScheduleShape& shape = plan.shape;
  const std::uint32_t rooms = shape.scratch_chunks * shape.replicas;
  // A room holds a chunk of a slice, which is at most a message.
  if (rooms > 0)
    scratch_bytes_ = std::uint64_t{rooms} * shape.scratch_versions *
                     (plan.message_bytes / shape.max_message_chunks);
  task_.own = bindings.own;
  task_.ranks = bindings.ranks;
  task_.host = bindings.host;
  task_.carve = plan.carve * 8 + static_cast<std::uint64_t>(bindings.messages) + 1;
  task_.timeout_ns = bindings.timeout_ns;
  task_.chunks = Divisor(shape.chunks);
  task_.scratch_rooms = Divisor(std::max(rooms, 1U));
  task_.scratch_versions = shape.scratch_versions;
  task_.replicas = shape.replicas;
  task_.fired_count = awaited ? lanes : 0;
  task_.rank_count = static_cast<std::uint32_t>(shape.ranks);
  task_.messages = bindings.messages;
  task_.one_device = bindings.one_device;
  task_.one_lane = bindings.one_lane;
}

BlockPart Image::add_part(const Plan& plan, const Program& part, const Bindings& bindings,
                          std::span<const std::uint16_t> sends,
                          std::span<const std::uint16_t> recvs) {
  BlockPart at;
  at.begin = room(0);
  at.lanes = add(std::span(part.lanes));
  at.loops = add(std::span(part.loops));
  at.steps = add(std::span(part.steps));
  at.operands = add(std::span(part.operands));
  at.waits = add(std::span(part.waits));
  at.remotes = add(bindings.remotes);
  std::vector<End> ends;
  const auto add_ends = [&](std::span<const std::uint16_t> numbers, std::span<const Connection> all,
                            const std::vector<ConnectionSpec>& specs, bool sender) {
    for (const std::uint16_t number : numbers) {
      End end;
      static_cast<Connection&>(end) = all[number];
      end.home = all[number].state;
      end.peer = sender ? specs[number].destination : specs[number].source;
      ends.push_back(end);
    }
  };
  add_ends(sends, bindings.sends, plan.sends, true);
  add_ends(recvs, bindings.recvs, plan.recvs, false);
  at.ends = add(std::span<const End>(ends));
  at.states = room(part.lanes.size() * sizeof(LaneState));
  at.lane_count = static_cast<std::uint32_t>(part.lanes.size());
  at.send_count = static_cast<std::uint32_t>(sends.size());
  at.recv_count = static_cast<std::uint32_t>(recvs.size());
  return at;
}

std::span<const std::byte> Image::placed_at(std::byte* memory) {
  task_.image = memory;
  task_.parts = reinterpret_cast<const BlockPart*>(memory + parts_);
  task_.fired = reinterpret_cast<Word*>(memory + fired_);
  task_.scratch = memory + uploaded_bytes();
  std::memcpy(bytes_.data(), static_cast<const void*>(&task_), sizeof task_);
  return bytes_;
}

// Returns the offset of the copy of `values` from the image's start.
template <typename T>
std::uint32_t Image::add(std::span<const T> values) {
  const std::uint32_t at = room(values.size_bytes());
  if (!values.empty())
    std::memcpy(bytes_.data() + at, static_cast<const void*>(values.data()), values.size_bytes());
  return at;
}

// Zeroes.
std::uint32_t Image::room(std::uint64_t size) {
  constexpr std::uint64_t kAligned = 64;
  const std::uint64_t at = (bytes_.size() + kAligned - 1) / kAligned * kAligned;
  bytes_.resize(at + size);
  return static_cast<std::uint32_t>(at);
}

}  // namespace tutti::device
