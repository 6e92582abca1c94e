#include "model/price.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

namespace tutti {
namespace {

struct PathLength {
  std::uint32_t messages = 0;
  std::uint64_t steps = 0;
  std::uint64_t operands = 0;
  std::uint64_t remotes = 0;
  void join(const PathLength& other) {
    messages = std::max(messages, other.messages);
    steps = std::max(steps, other.steps);
    operands = std::max(operands, other.operands);
    remotes = std::max(remotes, other.remotes);
  }
};

std::uint64_t chunk_operands(const Step& step) {
  std::uint64_t count = 0;
  for (const Operand& operand : step.destinations) count += operand.span.count();
  for (const Operand& operand : step.sources) count += operand.span.count();
  return count;
}

std::uint64_t remote_operands(const Step& step) {
  std::uint64_t count = 0;
  for (const auto* side : {&step.destinations, &step.sources})
    for (const Operand& operand : *side)
      if (operand.kind == OperandKind::kRemote) count += operand.span.count();
  return count;
}

// Runs one slice in dependency order, carrying the longest paths along messages, waits and
// lane order.
class PathWalk {
 public:
  explicit PathWalk(const Schedule& schedule) : schedule_(schedule), ends_(schedule.ranks.size()) {
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r)
      ends_[r].resize(schedule.ranks[r].lanes.size());
  }

  PathLength run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ends_.size(); ++r)
        for (std::size_t l = 0; l < ends_[r].size(); ++l)
          while (fire_next(static_cast<Rank>(r), l)) moved = true;
    }
    return longest_;
  }

 private:
  using Edge = std::tuple<Rank, Rank, Tag>;

  bool fire_next(Rank rank, std::size_t lane) {
    const auto r = static_cast<std::size_t>(rank);
    const Lane& program = schedule_.ranks[r].lanes[lane];
    std::vector<PathLength>& done = ends_[r][lane];
    if (done.size() == program.steps.size()) return false;
    const Step& step = program.steps[done.size()];
    PathLength start = done.empty() ? PathLength{} : done.back();
    for (const Wait& wait : step.waits) {
      if (wait.back > 0) continue;
      if (ends_[r][wait.lane].size() <= wait.step) return false;
      start.join(ends_[r][wait.lane][wait.step]);
    }
    for (const Operand& source : step.sources)
      if (source.kind == OperandKind::kRecv) {
        const auto& queue = messages_[{source.peer, rank, source.tag}];
        if (queue.empty()) return false;
        start.join(queue.front());
      }
    for (const Operand& source : step.sources)
      if (source.kind == OperandKind::kRecv) messages_[{source.peer, rank, source.tag}].pop_front();
    start.steps += 1;
    start.operands += chunk_operands(step);
    start.remotes += remote_operands(step);
    for (const Operand& destination : step.destinations)
      if (destination.kind == OperandKind::kSend) {
        PathLength sent = start;
        sent.messages += 1;
        longest_.join(sent);
        messages_[{rank, destination.peer, destination.tag}].push_back(sent);
      }
    longest_.join(start);
    done.push_back(start);
    return true;
  }

  const Schedule& schedule_;
  std::vector<std::vector<std::vector<PathLength>>> ends_;  // [rank][lane][step]
  std::map<Edge, std::deque<PathLength>> messages_;
  PathLength longest_;
};

}  // namespace

ScheduleCounts count_schedule(const Schedule& schedule) {
  ScheduleCounts counts;
  counts.chunks = schedule.shape.chunks;
  counts.max_message_chunks = schedule.shape.max_message_chunks;
  counts.ranks = schedule.shape.ranks;
  const PathLength path = PathWalk(schedule).run();
  counts.depth = path.messages;
  counts.path_steps = path.steps;
  counts.path_operands = path.operands;
  counts.path_remotes = path.remotes;
  for (const RankProgram& program : schedule.ranks) {
    std::uint64_t steps = 0, operands = 0, remotes = 0;
    for (const Lane& lane : program.lanes)
      for (const Step& step : lane.steps) {
        ++steps;
        operands += chunk_operands(step);
        remotes += remote_operands(step);
      }
    counts.max_steps = std::max(counts.max_steps, steps);
    counts.max_operands = std::max(counts.max_operands, operands);
    counts.total_steps += steps;
    counts.total_operands += operands;
    counts.max_remotes = std::max(counts.max_remotes, remotes);
    counts.total_remotes += remotes;
  }
  return counts;
}

double price_ns(const ScheduleCounts& counts, const HostCosts& costs, const PriceInput& input) {
  const double chunk = static_cast<double>(input.bytes) / counts.chunks;
  const double slices = input.slices;
  const double piece = chunk / slices;
  const double crowd = std::max(0.0, static_cast<double>(counts.ranks) / input.cores - 1.0);
  const double remote_beta = costs.remote_ns_per_byte + crowd * costs.remote_crowd_ns_per_byte;
  const auto remote = [&](std::uint64_t operands, double bytes) {
    return static_cast<double>(operands) * (costs.remote_ns + bytes * remote_beta);
  };
  const double path = counts.depth * (costs.alpha_ns + crowd * costs.switch_ns) +
                      static_cast<double>(counts.path_steps) * costs.step_ns +
                      static_cast<double>(counts.path_operands) * piece * costs.beta_ns_per_byte +
                      remote(counts.path_remotes, piece);
  const auto work = [&](std::uint64_t steps, std::uint64_t operands, std::uint64_t remotes) {
    return slices * (static_cast<double>(steps) * costs.step_ns + remote(remotes, piece)) +
           static_cast<double>(operands) * chunk * costs.beta_ns_per_byte;
  };
  const double own = work(counts.max_steps, counts.max_operands, counts.max_remotes);
  const double alone = input.replicas > 1 ? path + (1.0 - 1.0 / slices) * own : slices * path;
  const double shared = work(counts.total_steps, counts.total_operands, counts.total_remotes) /
                        std::min<double>(input.cores, counts.ranks);
  return std::max(alone, shared);
}

}  // namespace tutti
