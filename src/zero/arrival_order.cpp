// SPDX-License-Identifier: Apache-2.0
#include "zero/arrival_order.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace tutti::zero {

ArrivalOrder::ArrivalOrder(int workers, int bound, std::vector<int> script)
    : bound_(bound), script_(std::move(script)), workers_(static_cast<std::size_t>(workers)) {}

void ArrivalOrder::enter(int worker, Phase phase) {
  of(worker).phase = phase;
  of(worker).turn = ++turns_;
}

void ArrivalOrder::pushed(int worker) { enter(worker, Phase::kPushed); }
void ArrivalOrder::finished(int worker) { enter(worker, Phase::kFinished); }

bool ArrivalOrder::may_get(int worker) const {
  if (bound_ < 0) return true;
  if (in_script()) {
    const auto now = script_.begin() + version();
    const auto named = std::find(now, script_.end(), worker);
    return named != script_.end() && named - now <= bound_;
  }
  return std::ranges::count_if(
             workers_, [this](const Worker& other) { return has_parameters(other); }) <= bound_;
}

bool ArrivalOrder::may_apply(int worker) const {
  if (bound_ < 0) return true;
  std::vector<std::int64_t> deadlines;  // of the others
  for (int other = 0; other < static_cast<int>(workers_.size()); ++other) {
    const Worker& of_other = workers_[static_cast<std::size_t>(other)];
    if (other != worker && has_parameters(of_other)) deadlines.push_back(of_other.given + bound_);
  }
  std::ranges::sort(deadlines);
  std::int64_t earliest = version() + 1;
  return std::ranges::all_of(deadlines, [&](std::int64_t each) { return each >= earliest++; });
}

int ArrivalOrder::first(Phase phase, bool (ArrivalOrder::*may)(int) const) const {
  int found = -1;
  for (int worker = 0; worker < static_cast<int>(workers_.size()); ++worker) {
    const Worker& each = workers_[static_cast<std::size_t>(worker)];
    if (each.phase != phase || !(this->*may)(worker)) continue;
    if (found < 0 || each.turn < workers_[static_cast<std::size_t>(found)].turn) found = worker;
  }
  return found;
}

ArrivalOrder::Decision ArrivalOrder::refuse_next() {
  bool waits = false;
  for (int worker = 0; worker < static_cast<int>(workers_.size()); ++worker) {
    const Phase phase = of(worker).phase;
    if (phase == Phase::kComputes) waits = true;
    if (phase == Phase::kComputes || phase == Phase::kRefused) continue;
    enter(worker, Phase::kRefused);
    return {phase == Phase::kPushed ? Act::kDrop : Act::kRefuse, worker};
  }
  return {waits ? Act::kWait : Act::kEnd, 0};
}

ArrivalOrder::Decision ArrivalOrder::next() {
  if (failed_) return refuse_next();
  if (const int worker = first(Phase::kWants, &ArrivalOrder::may_get); worker >= 0) {
    of(worker).given = version();
    enter(worker, Phase::kComputes);
    return {Act::kGive, worker};
  }
  int applied = -1;
  if (in_script()) {
    const int named = script_[arrivals_.size()];
    if (of(named).phase == Phase::kFinished)
      throw std::runtime_error("update " + std::to_string(version()) +
                               " of Servers::arrivals is worker " + std::to_string(named) +
                               "'s, which has finished");
    if (of(named).phase == Phase::kPushed) applied = named;
  } else {
    applied = first(Phase::kPushed, &ArrivalOrder::may_apply);
  }
  if (applied >= 0) {
    arrivals_.push_back({applied, static_cast<int>(version() - of(applied).given)});
    enter(applied, Phase::kWants);
    return {Act::kApply, applied};
  }
  const bool over = std::ranges::all_of(
      workers_, [](const Worker& worker) { return worker.phase == Phase::kFinished; });
  return {over ? Act::kEnd : Act::kWait, 0};
}

}  // namespace tutti::zero
