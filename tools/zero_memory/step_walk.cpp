// SPDX-License-Identifier: Apache-2.0
#include "step_walk.hpp"

#include <algorithm>

namespace tutti::zero_memory {
namespace {

// Microsteps that are walked before their pace is taken for that of those left.
constexpr std::uint64_t kWalkedMicrosteps = 4;

// When each queue is done, and what went through it.
class Queues {
 public:
  explicit Queues(bool prefetch) : prefetch_(prefetch) {}

  void microstep(const std::vector<UnitWork>& units) {
    if (units.empty()) return;
    double gathered = ahead(compute_, units.front().gather);
    for (std::size_t i = 0; i < units.size(); ++i) {
      // The last unit is gathered again for backward, as a unit is freed after its forward.
      const UnitWork& next = units[i + 1 < units.size() ? i + 1 : i];
      gathered = work(gathered, units[i].gather, units[i].forward, next.gather);
    }
    for (std::size_t i = units.size(); i-- > 0;) {
      gathered =
          work(gathered, units[i].gather, units[i].backward, i > 0 ? units[i - 1].gather : 0);
      collective(compute_, units[i].reduce);
    }
  }
  // As many more, each as long as the last one took.
  void repeat(const Queues& before, std::uint64_t times) {
    const auto n = static_cast<double>(times);
    const Queues after = *this;
    compute_ += n * (after.compute_ - before.compute_);
    channel_ += n * (after.channel_ - before.channel_);
    computed_ += n * (after.computed_ - before.computed_);
    communicated_ += n * (after.communicated_ - before.communicated_);
  }
  [[nodiscard]] StepWalk result() const {
    return {computed_, communicated_, std::max(compute_, channel_)};
  }

 private:
  // Computes once the unit is there, which `gathered` says or, without prefetch, a gather that
  // starts only now. The next unit's gather starts with the computation. Returns its end.
  double work(double gathered, double own_gather, double seconds, double next_gather) {
    if (!prefetch_) gathered = collective(compute_, own_gather);
    const double start = std::max(compute_, gathered);
    const double next = ahead(start, next_gather);
    compute_ = start + seconds;
    computed_ += seconds;
    return next;
  }
  double ahead(double issued, double seconds) {
    return prefetch_ ? collective(issued, seconds) : issued;
  }
  // Returns when it ends; one that is not made ends when it is issued.
  double collective(double issued, double seconds) {
    if (seconds <= 0) return issued;
    channel_ = std::max(channel_, issued) + seconds;
    communicated_ += seconds;
    return channel_;
  }

  bool prefetch_;
  double compute_ = 0, channel_ = 0, computed_ = 0, communicated_ = 0;
};

}  // namespace

StepWalk walk_step(const std::vector<UnitWork>& inner, const std::vector<UnitWork>& last,
                   std::uint64_t microsteps, bool prefetch) {
  Queues queues(prefetch), before(prefetch);
  const std::uint64_t walked = std::min(microsteps - 1, kWalkedMicrosteps);
  for (std::uint64_t i = 0; i < walked; ++i) {
    before = queues;
    queues.microstep(inner);
  }
  if (walked > 0) queues.repeat(before, microsteps - 1 - walked);
  queues.microstep(last);
  return queues.result();
}

}  // namespace tutti::zero_memory
