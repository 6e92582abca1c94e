// SPDX-License-Identifier: Apache-2.0
#include "schedule/space_time.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>

namespace tutti {
namespace {

class Runner {
 public:
  explicit Runner(const Schedule& schedule) : schedule_(schedule) {
    for (const RankProgram& program : schedule.ranks) done_.emplace_back(program.lanes.size());
  }

  SpaceTime run() {
    // Sweeps until nothing moves. Times depend on what a step waits for, not on the sweep's order.
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < schedule_.ranks.size(); ++r)
        for (std::size_t l = 0; l < done_[r].size(); ++l)
          if (schedule_.ranks[r].lanes[l].replica == 0)
            while (advance(r, l)) moved = true;
    }
    for (std::size_t r = 0; r < schedule_.ranks.size(); ++r)
      for (std::size_t l = 0; l < done_[r].size(); ++l)
        if (schedule_.ranks[r].lanes[l].replica == 0)
          result_.stuck_steps += schedule_.ranks[r].lanes[l].steps.size() - done_[r][l].size();
    for (const auto& [key, queue] : in_flight_) result_.lost_messages += queue.size();
    return std::move(result_);
  }

 private:
  // Sender, receiver, tag -> the events that sent what is not yet received.
  using Key = std::tuple<Rank, Rank, Tag>;

  // Runs the lane's next step if it can run; at the earliest time it can.
  bool advance(std::size_t r, std::size_t l) {
    const Lane& lane = schedule_.ranks[r].lanes[l];
    std::vector<std::uint32_t>& done = done_[r][l];
    if (done.size() == lane.steps.size()) return false;
    const Step& step = lane.steps[done.size()];
    const auto rank = static_cast<Rank>(r);
    const std::optional<std::uint32_t> time = ready_time(step, rank, done);
    if (!time) return false;

    const auto event = static_cast<std::uint32_t>(result_.events.size());
    result_.events.push_back(
        {rank, static_cast<std::uint32_t>(l), static_cast<std::uint32_t>(done.size()), *time});
    result_.depth = std::max(result_.depth, *time);
    done.push_back(*time);
    for (const Operand& source : step.sources)
      if (source.kind == OperandKind::kRecv) {
        std::deque<std::uint32_t>& queue = in_flight_[{source.peer, rank, source.tag}];
        if (queue.empty()) continue;  // two receives of one connection in a step: not a proved one
        result_.messages.push_back({queue.front(), event, source.tag});
        queue.pop_front();
      }
    for (const Operand& destination : step.destinations)
      if (destination.kind == OperandKind::kSend)
        in_flight_[{rank, destination.peer, destination.tag}].push_back(event);
    return true;
  }

  std::optional<std::uint32_t> ready_time(const Step& step, Rank rank,
                                          const std::vector<std::uint32_t>& done) {
    std::uint32_t time = done.empty() ? 0 : done.back() + 1;
    for (const Wait& wait : step.waits) {
      if (wait.back > 0) continue;  // an earlier slice: there is none
      const std::vector<std::uint32_t>& awaited = done_[static_cast<std::size_t>(rank)][wait.lane];
      if (wait.step >= awaited.size()) return std::nullopt;
      time = std::max(time, awaited[wait.step] + 1);
    }
    for (const Operand& source : step.sources)
      if (source.kind == OperandKind::kRecv) {
        const auto queue = in_flight_.find({source.peer, rank, source.tag});
        if (queue == in_flight_.end() || queue->second.empty()) return std::nullopt;
        time = std::max(time, result_.events[queue->second.front()].time + 1);
      }
    return time;
  }

  const Schedule& schedule_;
  SpaceTime result_;
  std::map<Key, std::deque<std::uint32_t>> in_flight_;
  std::vector<std::vector<std::vector<std::uint32_t>>> done_;  // [rank][lane][step] = time
};

}  // namespace

SpaceTime space_time(const Schedule& schedule) { return Runner(schedule).run(); }

}  // namespace tutti
