#include "schedule/pace.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

namespace tutti {
namespace {

constexpr std::uint32_t kSettled = 32;  // slices after which the pace no longer changes, mostly

using Times = std::vector<std::uint64_t>;

// The messages of a connection so far: when each was sent, and when its slot was free again.
struct Traffic {
  Times sent, freed;
};

struct FlatStep {
  std::vector<std::size_t> sends, recvs;  // connections
  const std::vector<Wait>* waits = nullptr;
};

struct LaneRun {
  std::size_t rank = 0;
  std::uint32_t replica = 0;
  std::vector<FlatStep> steps;
  Times ended;  // by step, slice after slice
};

class Timing {
 public:
  Timing(const Schedule& schedule, std::uint32_t slots, std::uint32_t slices)
      : replicas_(schedule.shape.replicas), slots_(slots), slices_(slices) {
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
      first_lane_.push_back(lanes_.size());
      for (const Lane& lane : schedule.ranks[r].lanes) add_lane(r, lane);
    }
    traffic_.resize(connections_.size());
  }

  std::optional<std::uint64_t> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (LaneRun& lane : lanes_)
        while (fire_next(lane)) moved = true;
    }
    std::uint64_t last = 0;
    for (const LaneRun& lane : lanes_) {
      if (!is_done(lane)) return std::nullopt;
      if (!lane.ended.empty()) last = std::max(last, lane.ended.back());
    }
    return last;
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
          flat.sends.push_back(connection(own, operand.peer, operand.tag));
      for (const Operand& operand : step.sources)
        if (operand.kind == OperandKind::kRecv)
          flat.recvs.push_back(connection(operand.peer, own, operand.tag));
    }
  }

  std::size_t connection(Rank from, Rank to, Tag tag) {
    return connections_.emplace(std::tuple(from, to, tag), connections_.size()).first->second;
  }

  // Slices of the lane's replica.
  [[nodiscard]] std::uint64_t turns(const LaneRun& lane) const {
    return slices_ <= lane.replica ? 0 : (slices_ - lane.replica - 1) / replicas_ + 1;
  }
  [[nodiscard]] bool is_done(const LaneRun& lane) const {
    return lane.ended.size() == lane.steps.size() * turns(lane);
  }

  bool fire_next(LaneRun& lane) {
    if (is_done(lane)) return false;
    const std::uint64_t turn = lane.ended.size() / lane.steps.size();
    const FlatStep& step = lane.steps[lane.ended.size() % lane.steps.size()];
    std::uint64_t start = lane.ended.empty() ? 0 : lane.ended.back();
    for (const Wait& wait : *step.waits) {
      if (turn < wait.back) continue;
      const LaneRun& other = lanes_[first_lane_[lane.rank] + wait.lane];
      const std::uint64_t awaited = (turn - wait.back) * other.steps.size() + wait.step;
      if (awaited >= other.ended.size()) return false;
      start = std::max(start, other.ended[awaited]);
    }
    for (const std::size_t c : step.recvs) {
      const Traffic& traffic = traffic_[c];
      if (traffic.freed.size() == traffic.sent.size()) return false;
      start = std::max(start, traffic.sent[traffic.freed.size()]);
    }
    for (const std::size_t c : step.sends) {
      const Traffic& traffic = traffic_[c];
      if (traffic.sent.size() < slots_) continue;
      const std::size_t before = traffic.sent.size() - slots_;
      if (before >= traffic.freed.size()) return false;
      start = std::max(start, traffic.freed[before]);
    }
    const std::uint64_t end = start + 1;
    for (const std::size_t c : step.recvs) traffic_[c].freed.push_back(end);
    for (const std::size_t c : step.sends) traffic_[c].sent.push_back(end);
    lane.ended.push_back(end);
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
  return Timing(schedule, slots, slices).run();
}

std::optional<Pace> pace_of(const Schedule& schedule, std::uint32_t slots) {
  const auto one = plan_time(schedule, slots, 1);
  const auto some = plan_time(schedule, slots, kSettled);
  const auto many = plan_time(schedule, slots, 2 * kSettled);
  if (!one || !some || !many) return std::nullopt;
  return Pace{*one, static_cast<double>(*many - *some) / kSettled};
}

}  // namespace tutti
