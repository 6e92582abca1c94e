// SPDX-License-Identifier: Apache-2.0
#include "schedule/pace.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

namespace tutti {
namespace {

constexpr std::uint32_t kSettled = 32;  // slices after which the pace no longer changes, mostly

using Times = std::vector<std::uint64_t>;

// The last so many of a row of times, by their numbers.
class Window {
 public:
  void set_length(std::uint64_t length) { times_.resize(length); }
  void push(std::uint64_t time) { times_[count_++ % times_.size()] = time; }
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] std::uint64_t at(std::uint64_t number) const {
    return times_[number % times_.size()];
  }
  [[nodiscard]] std::uint64_t last() const { return count_ == 0 ? 0 : at(count_ - 1); }

 private:
  Times times_;
  std::uint64_t count_ = 0;
};

// The messages of a connection: when each was sent, and when its slot was free again.
struct Traffic {
  std::uint64_t of_slice = 0;  // messages
  Window sent, freed;
};

struct FlatStep {
  std::vector<std::size_t> sends, recvs;  // connections
  const std::vector<Wait>* waits = nullptr;
};

struct LaneRun {
  std::size_t rank = 0;
  std::uint32_t replica = 0;
  std::vector<FlatStep> steps;
  Window ended;  // by step, slice after slice
};

// All lanes take their next slice before any takes the one after: what a step can depend on is then
// of this slice, or a few back. (The times are the same in any order.)
class Timing {
 public:
  Timing(const Schedule& schedule, std::uint32_t slots, std::uint32_t slices)
      : replicas_(schedule.shape.replicas), slots_(slots), slices_(slices) {
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
      first_lane_.push_back(lanes_.size());
      for (const Lane& lane : schedule.ranks[r].lanes) add_lane(r, lane);
    }
    set_windows();
  }

  // When each slice is done on all ranks.
  std::optional<Times> run() {
    Times done(slices_);
    for (std::uint64_t turn = 0; turn * replicas_ < slices_; ++turn) {
      for (bool moved = true; moved;) {
        moved = false;
        for (LaneRun& lane : lanes_)
          while (fire_next(lane, turn)) moved = true;
      }
      for (const LaneRun& lane : lanes_) {
        if (!is_through(lane, turn)) return std::nullopt;
        const std::uint64_t slice = turn * replicas_ + lane.replica;
        if (slice < slices_) done[slice] = std::max(done[slice], lane.ended.last());
      }
      for (const Traffic& traffic : traffic_)
        if (traffic.sent.count() != traffic.freed.count()) return std::nullopt;
    }
    return done;
  }

 private:
  void add_lane(std::size_t rank, const Lane& lane) {
    LaneRun& run = lanes_.emplace_back();
    run.rank = rank;
    run.replica = lane.replica;
    const auto own = static_cast<Rank>(rank);
    for (const Step& step : lane.steps) {
      FlatStep& flat = run.steps.emplace_back();
      flat.waits = &step.waits;
      for (const Operand& operand : step.destinations)
        if (operand.kind == OperandKind::kSend)
          ++traffic_[flat.sends.emplace_back(connection(own, operand.peer, operand.tag))].of_slice;
      for (const Operand& operand : step.sources)
        if (operand.kind == OperandKind::kRecv)
          flat.recvs.push_back(connection(operand.peer, own, operand.tag));
    }
  }

  std::size_t connection(Rank from, Rank to, Tag tag) {
    const auto [found, first] =
        connections_.emplace(std::tuple(from, to, tag), connections_.size());
    if (first) traffic_.emplace_back();
    return found->second;
  }

  // No longer than what is looked back to: a wait's slices, the messages on their way, the slots.
  void set_windows() {
    std::uint64_t back = 0;
    for (const LaneRun& lane : lanes_)
      for (const FlatStep& step : lane.steps)
        for (const Wait& wait : *step.waits) back = std::max<std::uint64_t>(back, wait.back);
    back = std::min<std::uint64_t>(back, slices_);
    for (LaneRun& lane : lanes_) lane.ended.set_length((back + 1) * lane.steps.size());
    for (Traffic& traffic : traffic_) {
      traffic.sent.set_length(traffic.of_slice);
      traffic.freed.set_length(std::min<std::uint64_t>(slots_, traffic.of_slice * slices_));
    }
  }

  // Has the lane done this slice of its replica's, if there is one?
  [[nodiscard]] bool is_through(const LaneRun& lane, std::uint64_t turn) const {
    if (turn * replicas_ + lane.replica >= slices_) return true;
    return lane.ended.count() == lane.steps.size() * (turn + 1);
  }

  bool fire_next(LaneRun& lane, std::uint64_t turn) {
    if (is_through(lane, turn)) return false;
    const FlatStep& step = lane.steps[lane.ended.count() % lane.steps.size()];
    std::uint64_t start = lane.ended.last();
    for (const Wait& wait : *step.waits) {
      if (turn < wait.back) continue;
      const LaneRun& other = lanes_[first_lane_[lane.rank] + wait.lane];
      const std::uint64_t awaited = (turn - wait.back) * other.steps.size() + wait.step;
      if (awaited >= other.ended.count()) return false;
      start = std::max(start, other.ended.at(awaited));
    }
    for (const std::size_t c : step.recvs) {
      const Traffic& traffic = traffic_[c];
      if (traffic.freed.count() == traffic.sent.count()) return false;
      start = std::max(start, traffic.sent.at(traffic.freed.count()));
    }
    for (const std::size_t c : step.sends) {
      const Traffic& traffic = traffic_[c];
      if (traffic.sent.count() < slots_) continue;
      const std::uint64_t before = traffic.sent.count() - slots_;
      if (before >= traffic.freed.count()) return false;
      start = std::max(start, traffic.freed.at(before));
    }
    const std::uint64_t end = start + 1;
    for (const std::size_t c : step.recvs) traffic_[c].freed.push(end);
    for (const std::size_t c : step.sends) traffic_[c].sent.push(end);
    lane.ended.push(end);
    return true;
  }

  std::uint32_t replicas_, slots_, slices_;
  std::map<std::tuple<Rank, Rank, Tag>, std::size_t> connections_;
  std::vector<Traffic> traffic_;
  std::vector<LaneRun> lanes_;
  std::vector<std::size_t> first_lane_;  // by rank
};

}  // namespace

std::optional<std::uint64_t> plan_time(const Schedule& schedule, std::uint32_t slots,
                                       std::uint32_t slices) {
  const auto done = Timing(schedule, slots, slices).run();
  if (!done) return std::nullopt;
  return done->empty() ? 0 : *std::ranges::max_element(*done);
}

std::optional<Pace> pace_of(const Schedule& schedule, std::uint32_t slots) {
  const auto done = Timing(schedule, slots, 2 * kSettled).run();
  if (!done) return std::nullopt;
  const auto some = std::max_element(done->begin(), done->begin() + kSettled);
  const auto many = std::ranges::max_element(*done);
  return Pace{done->front(), static_cast<double>(*many - *some) / kSettled};
}

}  // namespace tutti
