// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/execution.hpp"

#include <fmt/core.h>

#include <deque>

namespace tutti::proof {
namespace {

class Runner {
 public:
  Runner(const Model& model, std::uint32_t slots)
      : model_(model),
        slots_(slots),
        sent_(model.connections.size()),
        received_(model.connections.size()),
        queued_(model.lanes.size(), true) {
    execution_.order.reserve(model.steps.size());
    execution_.next.resize(model.lanes.size());
    for (std::uint32_t lane = 0; lane < model.lanes.size(); ++lane) queue_.push_back(lane);
  }

  Execution run() {
    while (!queue_.empty()) {
      const std::uint32_t lane = queue_.front();
      queue_.pop_front();
      queued_[lane] = false;
      advance(lane);
    }
    return std::move(execution_);
  }

 private:
  void advance(std::uint32_t lane) {
    const FlatLane& flat = model_.lanes[lane];
    std::uint32_t& next = execution_.next[lane];
    while (next < flat.steps && enabled(model_.steps[flat.first_step + next])) {
      fire(flat.first_step + next);
      ++next;
      if (!model_.waits.empty()) wake_rank(flat.rank);
    }
  }

  [[nodiscard]] bool enabled(const FlatStep& step) const {
    for (const std::uint32_t m : model_.recvs_of(step)) {
      const Message& message = model_.messages[m];
      if (sent_[message.connection] <= message.position) return false;
    }
    for (const std::uint32_t m : model_.sends_of(step)) {
      const Message& message = model_.messages[m];
      if (message.position - received_[message.connection] >= slots_) return false;
    }
    for (const FlatWait& wait : model_.waits_of(step)) {
      const FlatStep& target = model_.steps[wait.step];
      if (wait.back == 0 && execution_.next[target.lane] <= target.index) return false;
    }
    return true;
  }

  void fire(std::uint32_t number) {
    const FlatStep& step = model_.steps[number];
    execution_.order.push_back(number);
    for (const std::uint32_t m : model_.recvs_of(step)) {
      const std::uint32_t connection = model_.messages[m].connection;
      ++received_[connection];
      wake(model_.connections[connection].sender);
    }
    for (const std::uint32_t m : model_.sends_of(step)) {
      const std::uint32_t connection = model_.messages[m].connection;
      ++sent_[connection];
      wake(model_.connections[connection].receiver);
    }
  }

  void wake(std::uint32_t lane) {
    if (queued_[lane]) return;
    queued_[lane] = true;
    queue_.push_back(lane);
  }
  void wake_rank(Rank rank) {
    const auto r = static_cast<std::size_t>(rank);
    for (std::uint32_t l = model_.rank_lanes[r]; l < model_.rank_lanes[r + 1]; ++l) wake(l);
  }

  const Model& model_;
  const std::uint32_t slots_;
  std::vector<std::uint32_t> sent_, received_;  // per connection
  std::deque<std::uint32_t> queue_;
  std::vector<bool> queued_;
  Execution execution_;
};

// The first thing a step lacks, given how far each lane came.
std::string missing_at(const Model& model, const Execution& execution, std::uint32_t number,
                       std::uint32_t slots) {
  const auto fired = [&](std::uint32_t step) {
    return execution.next[model.steps[step].lane] > model.steps[step].index;
  };
  const FlatStep& step = model.steps[number];
  for (const std::uint32_t m : model.recvs_of(step)) {
    const Message& message = model.messages[m];
    if (!fired(message.sender))
      return fmt::format("waits for a message on tag {} from {}",
                         model.connections[message.connection].tag,
                         describe(*model.schedule, model.site_of(message.sender)));
  }
  for (const FlatWait& wait : model.waits_of(step))
    if (wait.back == 0 && !fired(wait.step))
      return fmt::format("waits for {}", describe(*model.schedule, model.site_of(wait.step)));
  for (const std::uint32_t m : model.sends_of(step)) {
    const Message& message = model.messages[m];
    if (message.position < slots) continue;
    // Messages of a connection are numbered in a row.
    const Message& holder = model.messages[m - slots];
    if (!fired(holder.receiver))
      return fmt::format("finds all {} slots to rank {} tag {} full until {}", slots,
                         model.connections[message.connection].to,
                         model.connections[message.connection].tag,
                         describe(*model.schedule, model.site_of(holder.receiver)));
  }
  return "lacks nothing";
}

}  // namespace

Execution run_slice(const Model& model, std::uint32_t slots) { return Runner(model, slots).run(); }

std::string explain_stuck(const Model& model, const Execution& execution, std::uint32_t slots) {
  std::size_t stuck = 0;
  std::uint32_t first = 0;
  for (std::uint32_t lane = 0; lane < model.lanes.size(); ++lane) {
    if (execution.next[lane] == model.lanes[lane].steps) continue;
    if (stuck++ == 0) first = model.lanes[lane].first_step + execution.next[lane];
  }
  if (stuck == 0) return "nothing is stuck";
  return fmt::format("with {} slots {} of {} lanes are stuck; {} {}", slots, stuck,
                     model.lanes.size(), describe(*model.schedule, model.site_of(first)),
                     missing_at(model, execution, first, slots));
}

}  // namespace tutti::proof
